"""One at a time, first come first served, for who waits as long as there is hope."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from data_fetcher_core.deadlines import within


class Turn:
    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.is_taken = False

    async def take(self, patience: Callable[[], float]) -> bool:
        """Whether it came to us, before the seconds that ``patience`` says were over."""
        if not self.is_taken:
            self.is_taken = True
            return True
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            return await _wait(place, patience)
        except BaseException:
            if place.done():
                self.give()
            raise
        finally:
            place.cancel()

    def give(self) -> None:
        """To the next who still waits; it stays taken meanwhile, so nobody overtakes."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.is_taken = False


async def _wait(place: asyncio.Future[None], patience: Callable[[], float]) -> bool:
    while not place.done():
        if (left := patience()) <= 0:
            return False
        with suppress(TimeoutError), within(left):
            await asyncio.wait([place])
    return True
