"""Plain lines, for a file or a pipe: how far it is, now and then, and what happened at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from data_fetcher_core.cli.view import figures
from data_fetcher_core.cli.view.logs import Logs
from data_fetcher_core.cli.view.outlet import Outlet
from data_fetcher_core.cli.view.streams import line_writer
from data_fetcher_core.cli.view.talk import Talk
from data_fetcher_core.cli.view.tally import Picture, Tally
from data_fetcher_core.cli.view.telling import is_told, sentence
from data_fetcher_core.cli.view.watching import Look, keep_looking
from data_fetcher_core.clock import SYSTEM_CLOCK, Clock
from data_fetcher_core.events import Event

_FIRST = 5.0
_EVERY = 10.0


class LinesView:
    """One line every few seconds, and one for what a person should know of. No escape codes."""

    def __init__(
        self,
        stream: TextIO,
        *,
        clock: Clock = SYSTEM_CLOCK,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._tally = Tally(clock.monotonic)
        self._due = clock.monotonic() + _FIRST
        self._trouble: str | None = None
        self._outlet = Outlet(line_writer(stream))
        self._talk = Talk(self._outlet.put, clock.monotonic, self._stamp)
        self._logs = Logs(self._talk.record)
        self._logs.begin()

    def __call__(self, event: Event) -> None:
        self._tally.note(event)
        if is_told(event):
            self._talk.about(type(event).__name__, lambda: sentence(event))

    async def watch(self, look: Look) -> None:
        await keep_looking(look, self._tally, self._clock, self._looked)

    def say(self, line: str, *, problem: bool = False) -> None:
        self._talk.say(line)

    def close(self) -> None:
        self._logs.end()
        self._talk.tell_left_out()
        self._outlet.close()

    def _looked(self) -> None:
        picture, now = self._tally.picture(), self._clock.monotonic()
        if picture.trouble is not None and self._trouble is None:
            self._talk.note(f"the store does not answer: {picture.trouble}")
        self._trouble = picture.trouble
        if now >= self._due:
            self._due = now + _EVERY
            self._talk.tell_left_out()
            self._talk.note(progress_line(picture))

    def _stamp(self) -> str:
        return time.strftime("%H:%M:%S  ", time.localtime(self._wall()))


def progress_line(picture: Picture) -> str:
    """All that matters, on one line."""
    stats = picture.stats
    parts = [
        f"{figures.count(picture.done)} of {figures.count(picture.known)} pages known so far",
        *_pace(picture),
        figures.size(picture.received),
        f"ready {figures.count(stats.ready)}",
        f"delayed {figures.count(stats.delayed)}",
        f"in flight {figures.count(stats.leased)}",
        f"dead {figures.count(stats.dead)}",
        f"retried {figures.count(stats.retried)}",
    ]
    if picture.shut:
        parts.append(f"gated hosts {figures.count(len(picture.shut))}")
    if picture.seconds_left:
        parts.append(f"about {figures.rough(picture.seconds_left)} left if nothing new is found")
    return ("PAUSED, " if picture.paused is not None else "") + ", ".join(parts)


def _pace(picture: Picture) -> list[str]:
    """None while nothing goes on."""
    if picture.paused is not None:
        return []
    return [f"{_rate(picture.recent_rate)} pages/s ({_rate(picture.average_rate)} on average)"]


def _rate(rate: float | None) -> str:
    return "-" if rate is None else figures.rate(rate)
