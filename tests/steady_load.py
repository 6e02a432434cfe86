"""Work that goes on while servers change places under it, and the account of what that cost.

Every name is sent once. What was acknowledged, and when, is written down here, so that it can be
told afterwards what a server has forgotten, and whether it was allowed to.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from data_fetcher_core.core import Entry
from data_fetcher_core.errors import LeaseLost, StoreUnavailable
from data_fetcher_core.queue import KVStoreQueue, Lease
from tests.fault_support import results
from tests.harness import accounted, eventually, settled

T = TypeVar("T")
_BATCH = 5
_PAUSE = 0.005
_LANES = tuple("0123456789")


class Delivery(NamedTuple):
    name: str
    token: bytes
    at: float


class SteadyLoad:
    """Sends and works off, until it is told to stop; refusals are counted, and others raised."""

    def __init__(self, queue: KVStoreQueue, workers: int = 4, prefix: str = "") -> None:
        self.sent: dict[str, float] = {}
        self.perhaps_sent: set[str] = set()
        self.deliveries: list[Delivery] = []
        self.completed: dict[str, float] = {}
        self.refusals: Counter[str] = Counter()
        self.gave_up_after: list[float] = []
        self.slowest = 0.0
        self._queue = queue
        self._workers = workers
        self._prefix = prefix
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._produce())
            for _ in range(self._workers):
                tasks.create_task(self._work())

    def stop(self) -> None:
        self._stopped.set()

    async def until_sent(self, count: int) -> None:
        await self._until(lambda: len(self.sent) >= count)

    async def until_completed(self, more: int) -> None:
        """So many more than now."""
        wanted = len(self.completed) + more
        await self._until(lambda: len(self.completed) >= wanted)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async def holds() -> bool:
            return condition()

        await eventually(holds, within=40.0)

    async def _produce(self) -> None:
        number = 0
        while not self._stopped.is_set():
            names = [f"{self._prefix}{number + n}" for n in range(_BATCH)]
            number += _BATCH
            entries = [Entry(name, id=name, lane=name[-1]) for name in names]
            if await self._try(self._queue.enqueue(entries)) is None:
                self.perhaps_sent.update(names)
            else:
                self.sent.update(dict.fromkeys(names, time.monotonic()))
            await asyncio.sleep(_PAUSE)

    async def _work(self) -> None:
        while not self._stopped.is_set():
            taking = self._queue.lease(_BATCH, wait=0.2, lanes=_LANES)
            leases = await self._try(taking, allowed=0.2) or []
            await asyncio.gather(*map(self._handle, leases))

    async def _handle(self, lease: Lease) -> None:
        self.deliveries.append(Delivery(lease.id, lease.token, time.monotonic()))
        await self._try(self._complete(lease))

    async def _complete(self, lease: Lease) -> bool:
        await lease.complete(result=lease.item)
        self.completed[lease.id] = time.monotonic()
        return True

    async def _try(self, verb: Awaitable[T], allowed: float = 0.0) -> T | None:
        start = time.monotonic()
        try:
            return await verb
        except (StoreUnavailable, LeaseLost) as refusal:
            self._note(refusal, time.monotonic() - start)
            return None
        finally:
            self.slowest = max(self.slowest, time.monotonic() - start - allowed)

    def _note(self, refusal: Exception, after: float) -> None:
        self.refusals[type(refusal).__name__] += 1
        if isinstance(refusal, StoreUnavailable):
            self.gave_up_after.append(after)

    # --- afterwards ------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Work off what is left, leases that the server remembers and nobody has included."""

        async def is_empty() -> bool:
            await self._queue.sweep()
            for lease in await self._queue.lease(1_000):
                await self._handle(lease)
            await settled(self._queue)
            stats = await self._queue.stats()
            return stats.size + stats.leased == 0

        await eventually(is_empty, within=40.0)

    async def account(self) -> Account:
        stats = await accounted(self._queue)
        assert stats.size + stats.leased + stats.dead == 0, stats
        done = Counter(await results(self._queue))
        known = self.sent.keys() | self.perhaps_sent
        return Account(
            forgotten=self.sent.keys() - done.keys(),
            lost=self.sent.keys() - done.keys() - self.completed.keys(),
            appeared=done.keys() - known,
            completed_twice={name for name, times in done.items() if times > 1},
            delivered_twice={
                name
                for name, times in Counter(d.name for d in self.deliveries).items()
                if times > 1
            },
            tokens_reused=len(self.deliveries) - len({d.token for d in self.deliveries}),
        )

    def failed_early(self, op_timeout: float) -> int:
        """Callers who were told that the store is away before their time was up."""
        return sum(after < op_timeout for after in self.gave_up_after)

    def sent_within(self, start: float, end: float) -> set[str]:
        """What was acknowledged in this time: all that a server may forget that came back with
        what it had before."""
        return {name for name, at in self.sent.items() if start <= at <= end}

    def within(self, start: float, end: float) -> set[str]:
        """Whatever was sent, delivered or completed in this time."""
        moments: list[tuple[str, float]] = [*self.sent.items(), *self.completed.items()]
        moments += [(one.name, one.at) for one in self.deliveries]
        return {name for name, at in moments if start <= at <= end}


class Account(NamedTuple):
    """``forgotten`` by the server, having acknowledged it; ``lost`` if nobody worked on it."""

    forgotten: set[str]
    lost: set[str]
    appeared: set[str]
    completed_twice: set[str]
    delivered_twice: set[str]
    tokens_reused: int


class Waiter:
    """Has nothing to do but to wait for one request, of a lane that nobody else looks at."""

    _LANE = "waited for"

    def __init__(self, queue: KVStoreQueue) -> None:
        self.took = 0.0
        self._queue = queue
        self._called = 0.0

    async def run(self) -> None:
        (lease,) = await self._queue.lease(lanes=[self._LANE], wait=60.0)
        self.took = time.monotonic() - self._called
        await lease.complete()

    async def wake(self, queue: KVStoreQueue) -> None:
        self._called = time.monotonic()
        await queue.enqueue(["wake up"], lane=self._LANE)
