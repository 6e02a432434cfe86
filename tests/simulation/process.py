"""A process of the simulated world: its clock, its fate, and its way to the store."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import anyio

from data_fetcher_core.queue.consumers import Whereabouts
from tests.simulation.plan import Fault, Job, Skew

EPOCH = 1_000_000_000.0


class SkewedClock:
    """The store's clock is the store's; what the process measures by itself may be wrong."""

    def __init__(self, loop: asyncio.AbstractEventLoop, skew: Skew) -> None:
        self._time = loop.time
        self._skew = skew

    def store_now(self) -> float:
        return EPOCH + self._time()

    def wall(self) -> float:
        return EPOCH + self._skew.wall + self._time()

    def monotonic(self) -> float:
        return self._skew.monotonic + self._time() * self._skew.rate

    async def sleep(self, duration: float) -> None:
        await anyio.sleep(duration / self._skew.rate)


class Process:
    """One life of it; when it is started again that is another one, with another pid."""

    def __init__(self, number: int, life: int, pid: int, clock: SkewedClock) -> None:
        self.number = number
        self.name = f"p{number}.{life}"
        self.clock = clock
        # Half of them are on another host, where nobody can look whether they live.
        self.place = Whereabouts(f"host{number % 2}", "boot", "ns", pid, "1")
        self.dead = False
        self.has_left = False
        self.paused = False
        self.stash: list[asyncio.Handle] = []
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        # Held, so that nothing of it ends by itself: the dead do not clean up.
        self.remains: list[asyncio.Task[Any]] = []
        self.message_faults: deque[Fault] = deque()
        self.cuts: deque[Fault] = deque()
        self.cut_off_until = 0.0
        # What happens to it as soon as the store has done its next step for it.
        self.unheard: list[Callable[[], None]] = []
        self.heard: list[float] = []
        # What it was sending when it died.
        self.unsent: list[list[Job]] = []

    def die(self) -> None:
        self.dead = True
        self.remains = [task for task in self.tasks if not task.done()]
