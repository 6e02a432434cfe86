"""When locators are asked again: events of this process decide when to look."""

from __future__ import annotations

import math
from contextlib import suppress

import anyio

from data_fetcher_core.clock import Clock
from data_fetcher_core.errors import StoreFull
from data_fetcher_core.fetcher.room import Room
from data_fetcher_core.queue import KVStoreQueue

# A lane of turns is shut while there is no room. Who shut it may die: then it opens by itself.
# Nobody else opens it: it may be the provider who wants to be left alone.
_PARKED = 5.0
# Between two requests a worker is not idle.
_SETTLED = 0.2


class Refill:
    """Parks the turns of locators while enough is ready, and brings them back."""

    def __init__(self, queue: KVStoreQueue, target: int, concurrency: int, clock: Clock) -> None:
        self._queue = queue
        self._room = Room(target)
        self._clock = clock
        self._concurrency = concurrency
        self._busy = 0
        self._idle_since: float | None = clock.monotonic()
        self._filling = True
        self._until_look = 0
        self._look = anyio.Event()
        # Until when the lanes are shut by us, and surely not by what somebody else was told.
        self._parked: dict[str, float] = {}

    def worker_starts(self) -> None:
        self._busy += 1
        if self._busy * 2 > self._concurrency:
            self._idle_since = None
        if self._parked:
            self._until_look -= 1
            if self._until_look <= 0:
                self._look.set()

    def worker_ends(self) -> None:
        self._busy -= 1
        if self._idle_since is None and self._busy * 2 <= self._concurrency:
            self._idle_since = self._clock.monotonic()
            self._look.set()

    def _is_idle(self) -> bool:
        """Whether half of the workers have had nothing to do, for more than an instant."""
        since = self._idle_since
        return since is not None and self._clock.monotonic() - since >= _SETTLED

    async def has_room(self) -> bool:
        """Whether to ask a locator now."""
        ready = (await self._queue.stats()).ready
        self._filling = self._room.is_open(filling=self._filling, ready=ready, idle=self._is_idle())
        self._until_look = max(1, (ready - self._room.target // 2) // 2)
        return self._filling

    async def park(self, lane: str) -> None:
        """No turn of this lane until there is room."""
        until = self._clock.monotonic() + _PARKED
        await self._queue.shut(lane, _PARKED)
        self._parked[lane] = until

    def unpark(self, lane: str) -> None:
        self._parked.pop(lane, None)

    async def run(self) -> None:
        """Bring parked turns back, as soon as workers tell that there may be room."""
        while True:
            await self._wait_for_news()
            if self._parked and self._is_worth_a_look() and await self.has_room():
                # In a store without room they come back by themselves.
                with suppress(StoreFull):
                    await self.bring_back()

    async def _wait_for_news(self) -> None:
        """While workers are idle, that time passes is news, too."""
        with anyio.move_on_after(math.inf if self._idle_since is None else _SETTLED):
            await self._look.wait()
        self._look = anyio.Event()

    def _is_worth_a_look(self) -> bool:
        return self._until_look <= 0 or self._is_idle()

    async def bring_back(self) -> None:
        """Also when this process ends: nobody else knows what it has parked."""
        for lane, until in sorted(self._parked.items()):
            if self._clock.monotonic() < until:
                await self._queue.reopen(lane)
            self.unpark(lane)
