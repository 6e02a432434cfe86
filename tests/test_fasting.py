"""A request that must be leased alone gets its turn from a process that is always busy."""

from __future__ import annotations

import asyncio
from collections import deque

from data_fetcher_core.core import Entry
from data_fetcher_core.queue import KVStoreQueue, Lease
from data_fetcher_core.queue.fasting import Fasting
from data_fetcher_core.testing import ManualClock
from tests.conftest import MakeQueue
from tests.harness import background, outlive, settled, spin


def test_it_begins_after_a_while_and_ends_when_nothing_is_held() -> None:
    fasting = Fasting()
    fasting.heard(10.0, passed_over=True, held_any=True)
    fasting.heard(11.0, passed_over=True, held_any=True)
    assert not fasting.is_on(11.9, holds_any=True)
    assert fasting.is_on(12.0, holds_any=True)
    assert not fasting.is_on(12.1, holds_any=False)
    fasting.heard(12.2, passed_over=True, held_any=False)
    assert not fasting.is_on(14.0, holds_any=True), "it had its chance"


def test_nothing_was_passed_over() -> None:
    fasting = Fasting()
    fasting.heard(10.0, passed_over=True, held_any=True)
    fasting.heard(11.0, passed_over=False, held_any=True)
    assert not fasting.is_on(99.0, holds_any=True)


def test_what_takes_long_is_not_waited_for() -> None:
    fasting = Fasting()
    fasting.heard(10.0, passed_over=True, held_any=True)
    assert fasting.is_on(16.9, holds_any=True)
    assert not fasting.is_on(17.0, holds_any=True)
    fasting.heard(17.1, passed_over=True, held_any=True)
    assert not fasting.is_on(46.9, holds_any=True), "and the others have their turn"
    assert fasting.is_on(47.0, holds_any=True)


async def test_a_busy_process_passes_nothing_over_for_ever(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    first, queue = make_queue(max_deaths=2), make_queue()
    await first.enqueue([Entry("suspect", lane="its lane")])
    await first.lease()
    held = deque(await _busy(queue))
    await outlive(first, queue, clock)
    await queue.enqueue([Entry("behind it", lane="its lane")])
    begun = await _work_on(queue, clock, held)
    assert begun.index("suspect") < begun.index("behind it") < 20
    assert (await queue.stats()).ready > 50, "others still wait"
    assert await queue.lease() != [], "and who does not wait is not kept waiting"


async def _busy(queue: KVStoreQueue) -> list[Lease]:
    await queue.enqueue([Entry(n, lane="other") for n in range(100)])
    return await queue.lease(2)


async def _work_on(queue: KVStoreQueue, clock: ManualClock, held: deque[Lease]) -> list[str]:
    """One is leased before the last one is settled: something is always held, unless it fasts."""
    begun: list[str] = []
    async with asyncio.timeout(20):
        while not {"suspect", "behind it"} <= set(begun):
            async with background(queue.lease(wait=1000.0)) as waiting:
                while not waiting.done():
                    clock.advance(0.25)
                    await spin()
                    await settled(queue)
                    if held:
                        await held.popleft().complete()
                held += waiting.result()
            begun += [str(lease.item) for lease in waiting.result()]
    return begun
