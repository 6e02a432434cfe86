"""Workers that die: how soon others have what they held, and what a killer costs the others.

On a clock that the tests move, where a second of work takes no time and figures are exact.
"""

from __future__ import annotations

import asyncio

import pytest

from data_fetcher_core import Lease
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import KVStoreQueue, QueueOptions
from data_fetcher_core.testing import ManualClock
from tests.conftest import MakeQueue
from tests.evidence import Evidence
from tests.harness import accounted, background, crash, letters
from tests.virtual import in_virtual_time

HOUR = 3600.0
LEASE = 30.0


@pytest.mark.parametrize("before", [0.0, 4.0, 9.9])
async def test_what_the_dead_of_another_host_held_is_taken_up_in_time(
    make_queue: MakeQueue, clock: ManualClock, shows: Evidence, before: float
) -> None:
    """It was heard of last ``before`` its death; only its silence tells that it is dead."""
    dying, survivor = make_queue(), make_queue()
    await dying.enqueue(range(3))
    held = await dying.lease(3)
    async with background(survivor.lease(3, wait=HOUR)) as waiting:
        await _pass(clock, before, survivor)
        await crash(dying)
        died = clock.monotonic()
        while not waiting.done():
            await _pass(clock, 0.5, survivor)
        took = (clock.monotonic() - died) / LEASE
        assert [(lease.item, lease.deaths) for lease in await waiting] == [(0, 1), (1, 1), (2, 1)]
    assert len(held) == 3
    shows("F1", "leases until it is taken up by another host", took, at_most=1.5)


async def _pass(clock: ManualClock, seconds: float, queue: KVStoreQueue) -> None:
    """No faster than the store answers: where it is slow, time is."""
    clock.advance(seconds)
    await asyncio.sleep(0.01)
    await queue.stats()


# --- a request that kills its process ------------------------------------------------------------

PROCESSES, WORKERS, INNOCENT = 4, 5, 2_000
RESTART = 2.0


class Plant:
    """Processes of several workers each, all on one run; who dies is replaced after a while."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.died = 0
        self.done_at: list[float] = []

    def open(self) -> KVStoreQueue:
        return KVStoreQueue(
            self.store,
            "fetch:plant",
            clock=self.clock,
            options=QueueOptions(max_deaths=5),
            subscriber=lambda _: None,
        )

    async def run(self, deadly: int) -> float:
        """How long the innocent requests take, on the clock."""
        async with self.open() as queue:
            await queue.enqueue([*["deadly"] * deadly, *range(INNOCENT)])
            await in_virtual_time(self.clock, *(self._process() for _ in range(PROCESSES)))
            stats = await accounted(queue)
            assert (stats.completed, len(await letters(queue))) == (INNOCENT, deadly)
        return max(self.done_at)

    async def _process(self) -> None:
        while not await self._lives_to_the_end():
            self.died += 1
            await self.clock.sleep(RESTART)

    async def _lives_to_the_end(self) -> bool:
        queue, death = self.open(), asyncio.Event()
        workers = asyncio.gather(*(self._work(queue, death) for _ in range(WORKERS)))
        async with background(death.wait()) as dying, background(_all(workers)) as working:
            await asyncio.wait([dying, working], return_when=asyncio.FIRST_COMPLETED)
        # What the others had in hand is theirs until somebody notices that they are dead.
        await (crash(queue) if death.is_set() else queue.close())
        return not death.is_set()

    async def _work(self, queue: KVStoreQueue, death: asyncio.Event) -> None:
        async for lease in queue.leases(until="drained"):
            await self._handle(lease, death)

    async def _handle(self, lease: Lease, death: asyncio.Event) -> None:
        await self.clock.sleep(1.0)
        if lease.item == "deadly":
            death.set()
            await asyncio.Event().wait()
        await lease.complete()
        self.done_at.append(self.clock.monotonic())


async def _all(workers: asyncio.Future[list[None]]) -> None:
    await workers


async def test_the_others_of_a_killer_lose_little_of_their_throughput(shows: Evidence) -> None:
    alone = await Plant().run(deadly=0)
    plant = Plant()
    beside = await plant.run(deadly=1)
    shows("F32", "deaths beside the others", plant.died, exactly=5)
    shows("F32", "throughput of the others, of what it was", alone / beside, at_least=0.8)
