"""The lines that stay: what is said, what happened, what was logged."""

from __future__ import annotations

import logging
from collections.abc import Callable

from data_fetcher_core.cli.view.logs import LogTexts
from data_fetcher_core.cli.view.showable import showable, showable_lines
from data_fetcher_core.cli.view.sparing import Sparing

_TOLD = {
    "LaneShut": "hosts that are left alone",
    "LaneRecovered": "hosts that answer again",
    "Buried": "dead letters",
    "ConsumerReaped": "processes that died",
    "LeasesLost": "requests that were lost to others",
    "HeartbeatMissed": "heartbeats that failed",
    "StepsForgotten": "times that the store forgot",
}


class Talk:
    """Puts lines out, but of each kind only a few at a time."""

    def __init__(
        self,
        put: Callable[[str], None],
        now: Callable[[], float],
        stamp: Callable[[], str] = lambda: "",
    ) -> None:
        self._put = put
        self._now = now
        self._stamp = stamp
        self._sparing = Sparing()
        self._texts = LogTexts()

    def say(self, text: str) -> None:
        for line in showable_lines(text):
            self._put(line)

    def note(self, text: str) -> None:
        """Something that happened now."""
        self._put(f"{self._stamp()}{showable(text)}")

    def about(self, kind: str, text: Callable[[], str]) -> None:
        if self._sparing.lets(kind, self._now()):
            self.note(text())

    def record(self, record: logging.LogRecord) -> None:
        if self._sparing.lets(record.name, self._now()):
            self.say(self._texts.text(record))

    def tell_left_out(self) -> None:
        for kind, number in self._sparing.left_out().items():
            what = _TOLD.get(kind, f"lines of the log {kind}")
            self._put(f"({number} more {what} not shown)")
