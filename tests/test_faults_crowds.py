"""Ten thousand lanes with one that is far too full, and a flood of urgent requests."""

from __future__ import annotations

from collections import Counter

import pytest

from data_fetcher_core import Entry, Priority
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.testing import ManualClock
from tests.conftest import MakeQueue
from tests.evidence import Evidence
from tests.harness import accounted
from tests.test_order import jain

LANES = 10_000
CROWD = 20_000
BATCH = 1_000


@pytest.mark.slow
@pytest.mark.parametrize("store_kind", ["memory", "redis"], indirect=True)
async def test_ten_thousand_lanes_and_one_that_is_far_too_full(
    make_queue: MakeQueue, shows: Evidence
) -> None:
    queue = make_queue()
    await queue.enqueue(["0"] * CROWD, lane="0")
    await queue.enqueue(Entry(str(n), lane=str(n)) for n in range(1, LANES) for _ in range(2))
    taken = await _take(queue, LANES)
    await queue.enqueue(["newcomer"], lane="newcomer")
    waited = 0
    while "newcomer" not in taken[-BATCH:]:
        taken += await queue.dequeue(BATCH)
        waited += BATCH
    shares = Counter(taken[: 2 * LANES])  # later on, most lanes are empty
    shows("F49", "lanes that were served", len(shares), at_least=LANES)
    shows("F49", "Jain's index over two rounds", jain(list(shares.values())), at_least=0.95)
    shows("F49", "rounds that a newcomer waited", waited / LANES, at_most=2)
    assert (await accounted(queue)).ready == CROWD + 2 * (LANES - 1) + 1 - len(taken)


async def _take(queue: KVStoreQueue, count: int) -> list[str]:
    taken: list[str] = []
    while len(taken) < count:
        taken += await queue.dequeue(min(BATCH, count - len(taken)))
    return taken


async def test_a_flood_that_is_larger_than_what_is_served(
    make_queue: MakeQueue, clock: ManualClock, shows: Evidence
) -> None:
    """More urgent ones come than can be served: those that come too late stand behind it."""
    queue, head_start = make_queue(ageing_step=10.0), 4 * 10.0
    began = clock.store_now()
    await queue.enqueue([began], priority=Priority.VERY_LOW)
    came_at: list[float] = []
    came = 0
    while began not in came_at:
        clock.advance(1.0)
        urgent = [clock.store_now()] * 250
        came += len(urgent)
        await queue.enqueue(urgent, priority=Priority.VERY_HIGH)
        came_at += await queue.dequeue(200)
    before = came_at[: came_at.index(began)]
    unfair = sum(instant > began + head_start for instant in before)
    shows("F50", "urgent requests in the flood", came, at_least=10_000)
    shows("F50", "served before one that waits, after their head start", unfair, exactly=0)
