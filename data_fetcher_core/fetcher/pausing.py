"""What to do while something is full: wait, say so once, and lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from data_fetcher_core.clock import Clock
from data_fetcher_core.errors import StorageFull, StoreFull
from data_fetcher_core.events import GoesOn, Paused, Subscriber
from data_fetcher_core.queue.racing import race

T = TypeVar("T")
FULL = (StoreFull, StorageFull)
_SHORTEST, _LONGEST = 2.0, 8.0


class Pauses:
    """The pauses of one run in this process."""

    def __init__(self, namespace: str, clock: Clock, tell: Subscriber) -> None:
        self._namespace = namespace
        self._clock = clock
        self._tell = tell
        self._is_told = False
        self._is_patient = True
        self._over = anyio.Event()
        self._trying = asyncio.Lock()
        self._interval = _SHORTEST

    @property
    def are_on(self) -> bool:
        return self._is_told

    def give_up(self) -> None:
        """From now on nobody waits for room."""
        self._is_patient = False

    async def insist(self, act: Callable[[], Awaitable[T]], *, needs_room: bool = True) -> T:
        """Do it, again and again while there is no room.

        What needs none is refused only by a disk that is full to the last byte; that it succeeds
        says little.
        """
        while True:
            try:
                done = await act()
            except FULL as error:
                if not self._is_patient:
                    raise
                await self.wait(error)
            else:
                if needs_room and self._is_told:
                    self._end()
                return done

    async def wait(self, error: Exception) -> None:
        """Until it is worth trying again."""
        self.begin(error)
        await self.pass_by()

    def begin(self, error: Exception) -> None:
        if not self._is_told:
            self._is_told = True
            self._over = anyio.Event()
            self._tell(Paused(self._namespace, str(error)))

    async def pass_by(self) -> None:
        """Whoever is about to begin something waits here while there is a pause.

        One tries at a time: a full disk must not mean that pages are fetched over and over.
        """
        if not self._is_told:
            return
        async with self._trying:
            if self._is_told:
                await race(self._over.wait, lambda: self._clock.sleep(self._interval))
                self._interval = min(2 * self._interval, _LONGEST)

    def _end(self) -> None:
        """Something that needs room has succeeded."""
        self._is_told = False
        self._interval = _SHORTEST
        self._over.set()
        self._tell(GoesOn(self._namespace))
