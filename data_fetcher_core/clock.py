"""Where time comes from.

A store keeps its own time (Redis its server's, SQLite and memory this host's); a process measures
durations on its monotonic clock. Both are asked for through one object, so that a test can put
another in its place and let an hour pass in no time.
"""

from __future__ import annotations

import time
from typing import Protocol

import anyio


class Clock(Protocol):
    """The three questions the package asks about time."""

    def store_now(self) -> float | None:
        """The instant a store should take for now, or ``None`` for the store's own clock."""

    def monotonic(self) -> float:
        """Seconds that only grow; for durations inside this process."""

    async def sleep(self, duration: float) -> None:
        """Return after ``duration`` seconds of :meth:`monotonic`."""


class SystemClock:
    """The real thing."""

    def store_now(self) -> float | None:
        return None

    # The function itself: it is asked ten times for every request.
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, duration: float) -> None:
        await anyio.sleep(duration)


SYSTEM_CLOCK = SystemClock()
