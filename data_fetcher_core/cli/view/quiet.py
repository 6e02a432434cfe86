"""Nothing but problems."""

from __future__ import annotations

from typing import TextIO

import anyio

from data_fetcher_core.cli.view.logs import Logs
from data_fetcher_core.cli.view.outlet import Outlet
from data_fetcher_core.cli.view.streams import line_writer
from data_fetcher_core.cli.view.talk import Talk
from data_fetcher_core.cli.view.telling import OF_THE_RUN, sentence
from data_fetcher_core.cli.view.watching import Look
from data_fetcher_core.clock import SYSTEM_CLOCK, Clock
from data_fetcher_core.events import ConsumerReaped, Event


class QuietView:
    """Says what stops or hurts the run; how far it is, is not asked."""

    def __init__(self, stream: TextIO, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._outlet = Outlet(line_writer(stream))
        self._talk = Talk(self._outlet.put, clock.monotonic)
        self._logs = Logs(self._talk.record)
        self._logs.begin()

    def __call__(self, event: Event) -> None:
        if isinstance(event, OF_THE_RUN) and not isinstance(event, ConsumerReaped):
            self._talk.about(type(event).__name__, lambda: sentence(event))

    async def watch(self, look: Look) -> None:
        await anyio.sleep_forever()

    def say(self, line: str, *, problem: bool = False) -> None:
        if problem:
            self._talk.say(line)

    def close(self) -> None:
        self._logs.end()
        self._outlet.close()
