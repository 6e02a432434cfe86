"""Every operation, cancelled at every step it takes: it happened or it did not, never half."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from data_fetcher_core import Lease
from data_fetcher_core.core import QueueStats
from data_fetcher_core.errors import StoreLost
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.queue.lease import LeaseState
from data_fetcher_core.testing import ManualClock
from tests.cancelling import Steps, cancelled_everywhere, steps
from tests.conftest import MakeQueue
from tests.harness import (
    accounted,
    as_time_passes,
    background,
    beat_twice,
    cancelled_after,
    client_of,
    eventually,
    foreign_tasks,
    places,
    settled,
    spin,
)
from tests.operations import MANY, OPERATIONS, Stage

__all__ = ["steps"]

HOUR = 3600.0

# --- nothing is lost, nothing is left behind ---------------------------------------------------


@pytest.mark.parametrize("name", OPERATIONS)
async def test_the_account_is_right_after_every_cancellation(
    make_queue: MakeQueue, steps: Steps, name: str
) -> None:
    async def check(stage: Stage, _: bool) -> None:
        await beat_twice(stage.queue)
        stats = await accounted(stage.queue)
        holding = [one for one in stage.held if one.state is LeaseState.HELD]
        assert stats.leased == len(holding), "leased by nobody"
        assert await stage.queue.peek(99) is not None
        await _the_queue_goes_on(stage.queue)

    await cancelled_everywhere(make_queue, steps, name, check)


async def _the_queue_goes_on(queue: KVStoreQueue) -> None:
    await queue.enqueue(["after"], lane="after")
    (one,) = await queue.lease(lanes=["after"])
    await one.complete()


async def test_a_cancelled_lease_spends_nothing_and_keeps_the_order(
    make_queue: MakeQueue,
    steps: Steps,
) -> None:
    store = make_queue()._store
    for step in steps():
        queue = make_queue(f"fetch:{step}", store=store)
        await queue.enqueue(range(5))
        taken: list[Lease] = []
        cancelled = await cancelled_after(step, _take(queue, taken))
        if not cancelled:
            return
        await settled(queue)
        await beat_twice(queue)
        assert await queue.peek(9) == list(range(5)), f"after {step} steps"
        leases = await queue.lease(9)
        assert {(one.attempts, one.deaths) for one in leases} == {(0, 0)}
        await queue.close()


async def _take(queue: KVStoreQueue, taken: list[Lease]) -> None:
    taken += await queue.lease(3)


async def test_cancelled_while_its_batch_is_on_its_way_it_is_undone_without_a_heartbeat(
    queue: KVStoreQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.enqueue(range(5))
    assert len(await queue.lease()) == 1
    granted, answer = asyncio.Event(), asyncio.Event()
    engine = (await client_of(queue)).engine
    grant = engine.lease

    async def slowly(*args: Any, **rest: Any) -> Any:
        grants = await grant(*args, **rest)
        granted.set()
        await answer.wait()
        return grants

    monkeypatch.setattr(engine, "lease", slowly)
    stays = asyncio.ensure_future(queue.lease(1))
    goes = asyncio.ensure_future(queue.lease(2))
    await granted.wait()
    goes.cancel()
    await asyncio.wait([goes])
    answer.set()
    (kept,) = await stays
    await settled(queue)
    assert kept.item == 1
    assert await queue.peek(9) == [2, 3, 4]


# --- closing, forgetting -----------------------------------------------------------------------


async def test_a_close_that_was_cancelled_can_be_finished(
    make_queue: MakeQueue, steps: Steps
) -> None:
    store = make_queue()._store
    for step in steps():
        stage = Stage(make_queue(f"fetch:{step}", store=store))
        await stage.set()
        known = set(asyncio.all_tasks())
        cancelled = await cancelled_after(step, stage.queue.close())
        await stage.queue.close()
        assert foreign_tasks(known) == set()
        assert (await accounted(stage.queue)).leased == 0, f"after {step} steps"
        leases = await stage.queue.lease(9)
        assert {(one.attempts, one.deaths) for one in leases} == {(0, 0)}
        await stage.queue.close()
        if not cancelled:
            return


async def test_a_queue_whose_close_was_cut_short_can_be_used(
    make_queue: MakeQueue, steps: Steps
) -> None:
    store = make_queue()._store
    for step in steps():
        queue = make_queue(f"fetch:{step}", store=store)
        await queue.enqueue(["a", "b"])
        left = await queue.lease()
        cut_short = await cancelled_after(step, queue.close())
        await _the_queue_goes_on(queue)
        await settled(queue)
        await queue.close()
        assert await places(queue) == {"ready": 2}, left
        if not cut_short:
            return
    raise AssertionError("it never got through")


async def test_a_forget_that_was_cancelled_can_be_finished(
    make_queue: MakeQueue, steps: Steps
) -> None:
    store = make_queue()._store
    for step in steps():
        stage = Stage(make_queue(f"fetch:{step}", store=store))
        await stage.set()
        await stage.queue.enqueue(range(MANY))
        cancelled = await cancelled_after(step, stage.queue.forget())
        fresh = make_queue(f"fetch:{step}", store=store)
        await (stage.queue if step % 2 else fresh).forget()
        assert await fresh.stats() == QueueStats()
        await fresh.enqueue(["anew"])
        assert await fresh.dequeue() == ["anew"]
        await fresh.close()
        with suppress(StoreLost):
            await stage.queue.close()
        if not cancelled:
            return


# --- in the hands of others --------------------------------------------------------------------


async def test_a_body_that_is_cancelled_gives_back(queue: KVStoreQueue) -> None:
    await queue.enqueue(["x"])
    started = asyncio.Event()

    async def work() -> None:
        async with (await queue.lease())[0]:
            started.set()
            await asyncio.sleep(HOUR)

    working = asyncio.ensure_future(work())
    await started.wait()
    working.cancel()
    await asyncio.wait([working])
    assert working.cancelled()
    (again,) = await queue.lease()
    assert (again.attempts, again.deaths) == (0, 0)


@pytest.mark.parametrize("between", range(6))
async def test_cancelled_again_while_it_gives_back(queue: KVStoreQueue, between: int) -> None:
    await queue.enqueue(["x"])
    (held,) = await queue.lease()
    started = asyncio.Event()

    async def work() -> None:
        async with held:
            started.set()
            await asyncio.sleep(HOUR)

    working = asyncio.ensure_future(work())
    await started.wait()
    working.cancel()
    for _ in range(between):
        await asyncio.sleep(0)
        working.cancel()
    await asyncio.wait([working])
    assert working.cancelled()
    await beat_twice(queue)
    assert await places(queue) == {"ready": 1}


async def test_in_a_cancelled_scope(queue: KVStoreQueue) -> None:
    """Level cancellation: every wait inside is cancelled again, giving back included."""
    await queue.enqueue(["x"])
    (held,) = await queue.lease()
    with anyio.CancelScope() as scope:
        async with held:
            scope.cancel()
            await anyio.sleep_forever()
    assert held.state is LeaseState.SETTLED
    assert await places(queue) == {"ready": 1}


async def test_a_time_limit_on_a_lease_that_waits(queue: KVStoreQueue) -> None:
    await queue.size()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await queue.lease(wait=HOUR)
    await queue.enqueue(["x"])
    assert len(await queue.lease(wait=HOUR)) == 1


async def test_a_sibling_that_fails(queue: KVStoreQueue) -> None:
    """A task group cancels its others: what they held is given back, what they waited for stays."""
    await queue.enqueue(range(4))

    async def work() -> None:
        async for one in queue.leases(prefetch=2):
            async with one:
                await asyncio.sleep(HOUR)

    async def fail() -> None:
        await eventually(_leased(queue, 4))
        raise ZeroDivisionError

    with suppress(BaseExceptionGroup):
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(work())
            group.create_task(fail())
    await beat_twice(queue)
    assert await places(queue) == {"ready": 4}


def _leased(queue: KVStoreQueue, count: int) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return (await queue.stats()).leased == count

    return look


async def test_one_of_many_in_a_batch_is_cancelled(queue: KVStoreQueue) -> None:
    """The others of its batch get what they asked for, and the batch is not torn."""
    for gone in range(10):
        callers = [asyncio.ensure_future(queue.enqueue([n])) for n in range(10)]
        await spin(gone % 4)
        callers[gone].cancel()
        await asyncio.wait(callers)
        done = [caller.result() for n, caller in enumerate(callers) if n != gone]
        assert done == [1] * 9
        await settled(queue)
        assert await queue.clear() in {9, 10}
    await accounted(queue)


async def test_settlements_of_many_with_some_cancelled(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(40))
    leases = await queue.lease(40)
    settling = [asyncio.ensure_future(one.complete(enqueue=["child"])) for one in leases]
    await asyncio.sleep(0)
    for task in settling[::3]:
        task.cancel()
    await asyncio.wait(settling)
    await settled(queue)
    stats = await accounted(queue)
    assert stats.completed == stats.ready
    assert stats.completed >= sum(not task.cancelled() for task in settling)
    assert stats.completed + stats.leased == 40


async def test_heartbeats_and_cancellations_in_a_crowd(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    """Workers are cancelled in the middle of everything, while the heart beats."""
    await queue.enqueue(range(30))

    async def work() -> None:
        async for one in queue.leases(prefetch=3):
            async with one:
                await asyncio.sleep(0)
                if one.item % 3 == 0 and one.attempts == 0:
                    raise ValueError("once")

    for patience in itertools.chain(range(30), range(30, 300, 30)):
        async with background(work()):
            await spin(patience)
        clock.advance(1.0)
        await queue.sweep()

    async def finished() -> bool:
        return (await queue.stats()).completed == 30

    async with background(work()):
        await as_time_passes(clock, finished)
    assert (await accounted(queue)).buried == 0
