"""A frame at the bottom of the terminal that shows where the run stands, drawn by a thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console

from data_fetcher_core.cli.view.frame import Space, frame
from data_fetcher_core.cli.view.glyphs import Glyphs, glyphs_for
from data_fetcher_core.cli.view.logs import Logs
from data_fetcher_core.cli.view.outlet import Outlet
from data_fetcher_core.cli.view.region import Region
from data_fetcher_core.cli.view.stray import Strays
from data_fetcher_core.cli.view.talk import Talk
from data_fetcher_core.cli.view.tally import Tally
from data_fetcher_core.cli.view.telling import OF_THE_RUN, sentence
from data_fetcher_core.cli.view.watching import Look, keep_looking
from data_fetcher_core.clock import SYSTEM_CLOCK, Clock
from data_fetcher_core.events import Event

_EVERY = 0.2
# Not drawn for so long, the process was stopped, and others wrote to the terminal meanwhile.
_STOPPED = 3.0
# The rest of the terminal is for the lines above.
_SHARE, _LEAST = 0.75, 12
_USUAL_SIZE = os.terminal_size((80, 24))


class LiveView:
    """Draws a few times a second; lines that are said come above, and stay."""

    def __init__(self, stream: TextIO, title: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._stream = stream
        self._title = title
        self._clock = clock
        self._glyphs = glyphs_for(stream.encoding)
        self._tally = Tally(clock.monotonic)
        self._drawn_at = clock.monotonic()
        self._region = Region(_console(stream), stream)
        self._outlet = Outlet(self._draw, every=_EVERY, finish=self._leave)
        self._talk = Talk(self._outlet.put, clock.monotonic)
        self._logs = Logs(self._talk.record)
        self._strays = Strays(self._talk.say)
        self._logs.begin()
        self._strays.begin()

    def __call__(self, event: Event) -> None:
        self._tally.note(event)
        if isinstance(event, OF_THE_RUN):
            self._talk.about(type(event).__name__, lambda: sentence(event))

    async def watch(self, look: Look) -> None:
        await keep_looking(look, self._tally, self._clock, self._talk.tell_left_out)

    def say(self, line: str, *, problem: bool = False) -> None:
        self._talk.say(line)

    def close(self) -> None:
        self._strays.end()
        self._logs.end()
        self._outlet.close()

    def _draw(self, above: Sequence[str]) -> None:
        size, now = _size_of(self._stream), self._clock.monotonic()
        if now - self._drawn_at > _STOPPED:
            self._region.let_go()
        self._drawn_at = now
        drawn = frame(self._tally.picture(), self._title, _space_in(size, self._glyphs))
        self._region.draw(above, drawn, size.columns)

    def _leave(self, above: Sequence[str]) -> None:
        """Only the lines that were said are left."""
        self._region.draw(above, [], _size_of(self._stream).columns)


def _console(stream: TextIO) -> Console:
    return Console(file=stream, highlight=False, markup=False, emoji=False)


def _space_in(size: os.terminal_size, glyphs: Glyphs) -> Space:
    """The last column stays free, and so does the last line, where the cursor waits."""
    height = min(size.lines - 1, max(_LEAST, int(size.lines * _SHARE)))
    return Space(size.columns - 1, height, glyphs)


def _size_of(stream: TextIO) -> os.terminal_size:
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return _USUAL_SIZE
    return size if size.columns > 0 and size.lines > 0 else _USUAL_SIZE
