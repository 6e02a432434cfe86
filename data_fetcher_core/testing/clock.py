"""A clock that stands still until it is told to move."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class ManualClock:
    """Time for tests. ``advance`` lets it pass; ``jump`` sets the store's clock and nothing else.

    Instants are kept in whole microseconds, so that what a test computes is what a store sees.
    """

    def __init__(self, start: float = 1_000_000_000.0) -> None:
        self._store_now = round(start * 1e6)
        self._monotonic = 0
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def store_now(self) -> float:
        return self._store_now / 1e6

    @property
    def microseconds(self) -> int:
        return self._store_now

    def monotonic(self) -> float:
        return self._monotonic / 1e6

    async def sleep(self, duration: float) -> None:
        if duration <= 0:
            await asyncio.sleep(0)
            return
        awake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        at = self._monotonic + round(duration * 1e6)
        heapq.heappush(self._sleepers, (at, next(self._order), awake))
        await awake

    def advance(self, duration: float) -> None:
        """Let time pass for everybody; sleepers that are due wake at the next suspension."""
        self._monotonic += round(duration * 1e6)
        self._store_now += round(duration * 1e6)
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            _, _, awake = heapq.heappop(self._sleepers)
            if not awake.done():
                awake.set_result(None)

    def jump(self, duration: float) -> None:
        """Step the store's clock, forward or back, as an operator or a time server does."""
        self._store_now += round(duration * 1e6)
