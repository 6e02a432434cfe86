"""Waiting for work and for room: woken at once, never polling, never forgotten."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core import Entry, Lease
from data_fetcher_core.clock import SYSTEM_CLOCK
from data_fetcher_core.errors import QueueFull, StoreLost, ValidationError
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.testing import ManualClock, make_faulty
from tests.children import child, said
from tests.conftest import MakeQueue, OpenStore
from tests.harness import (
    accounted,
    as_time_passes,
    background,
    beat_twice,
    client_of,
    crash,
    eventually,
    foreign_tasks,
    items,
    places,
    settled,
    spin,
)
from tests.waiting import failure_of

HOUR = 3600.0
SOON = 5.0
transactional = pytest.mark.parametrize("store_kind", ["memory", "sqlite"], indirect=True)


def is_done(task: asyncio.Task[Any]) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return task.done()

    return look


def waits(queue: KVStoreQueue, count: int) -> Callable[[], Awaitable[bool]]:
    """Whether so many callers have taken their seats."""

    async def look() -> bool:
        assert queue._session is not None
        rooms = queue._session.rooms._rooms.values()
        return sum(len(room.waiters) for room in rooms) == count

    return look


async def seated(queue: KVStoreQueue, count: int = 1) -> None:
    await eventually(waits(queue, count))
    await spin()


# --- for work ----------------------------------------------------------------------------------


async def test_what_is_there_is_not_waited_for(queue: KVStoreQueue) -> None:
    await queue.enqueue(["x"])
    assert items(await queue.lease(9, wait=HOUR)) == ["x"]


async def test_an_empty_answer_only_after_the_time_is_over(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    await queue.size()
    async with background(queue.lease(wait=60.0)) as waiting:
        await seated(queue)
        clock.advance(59.999)
        await asyncio.wait([waiting], timeout=0.02)
        assert not waiting.done()
        clock.advance(0.001)
        await eventually(is_done(waiting))
        assert waiting.result() == []


@pytest.mark.parametrize("same", [True, False], ids=["this queue", "another store object"])
async def test_woken_by_what_is_enqueued(make_queue: MakeQueue, same: bool) -> None:
    queue = make_queue()
    other = queue if same else make_queue()
    await queue.size()
    async with background(queue.lease(wait=HOUR)) as waiting:
        await seated(queue)
        await other.enqueue(["x"])
        assert items(await asyncio.wait_for(waiting, SOON)) == ["x"]


async def release(_: KVStoreQueue, lease: Lease) -> None:
    await lease.release(error="again")


async def give_back(_: KVStoreQueue, lease: Lease) -> None:
    await lease.give_back()


async def have_a_child(_: KVStoreQueue, lease: Lease) -> None:
    await lease.complete(enqueue=["child"])


async def requeue(queue: KVStoreQueue, lease: Lease) -> None:
    await lease.bury("no")
    assert await queue.requeue() == 1


async def close(queue: KVStoreQueue, _: Lease) -> None:
    await queue.close()


@pytest.mark.parametrize("act", [release, give_back, have_a_child, requeue, close])
async def test_woken_by_whatever_makes_a_request_ready(
    make_queue: MakeQueue, act: Callable[[KVStoreQueue, Lease], Awaitable[None]]
) -> None:
    waiter, actor = make_queue(), make_queue()
    await actor.enqueue(["x"])
    (lease,) = await actor.lease()
    await waiter.size()
    async with background(waiter.lease(wait=HOUR)) as waiting:
        await seated(waiter)
        await act(actor, lease)
        assert len(await asyncio.wait_for(waiting, SOON)) == 1


async def test_woken_by_the_death_of_another(make_queue: MakeQueue, clock: ManualClock) -> None:
    waiter, dead = make_queue(), make_queue()
    await dead.enqueue(["x"])
    await dead.lease()
    await crash(dead)
    async with background(waiter.lease(wait=HOUR)) as waiting:
        await as_time_passes(clock, is_done(waiting))
        assert items(waiting.result()) == ["x"]


async def test_woken_when_a_lane_is_opened(make_queue: MakeQueue) -> None:
    queue, other = make_queue(), make_queue()
    await queue.shut("a", HOUR)
    await queue.enqueue(["x"], lane="a")
    async with background(queue.lease(wait=2 * HOUR)) as waiting:
        await seated(queue)
        await other.reopen("a")
        assert items(await asyncio.wait_for(waiting, SOON)) == ["x"]


async def test_woken_when_a_lanes_limit_is_raised(make_queue: MakeQueue) -> None:
    queue, other = make_queue(), make_queue()
    await queue.pace("a", limit=1)
    await queue.enqueue(["held", "x"], lane="a")
    (held,) = await queue.lease(9)
    async with background(queue.lease(wait=HOUR)) as waiting:
        await seated(queue)
        await other.pace("a", limit=2)
        assert items(await asyncio.wait_for(waiting, SOON)) == ["x"]
    await held.complete()


async def test_woken_when_a_lane_falls_below_its_limit(make_queue: MakeQueue) -> None:
    queue, other = make_queue(), make_queue()
    await queue.pace("a", limit=1)
    await queue.enqueue(["held", "x"], lane="a")
    (held,) = await other.lease(9)
    async with background(queue.lease(wait=HOUR)) as waiting:
        await seated(queue)
        await held.complete()
        assert items(await asyncio.wait_for(waiting, SOON)) == ["x"]


@pytest.mark.parametrize("selection", [None, ["a"], ["b", "a"]], ids=str)
async def test_woken_for_its_lanes(make_queue: MakeQueue, selection: list[str] | None) -> None:
    queue, other = make_queue(), make_queue()
    await queue.size()
    async with background(queue.lease(wait=HOUR, lanes=selection)) as waiting:
        await seated(queue)
        await other.enqueue(["x"], lane="a")
        assert items(await asyncio.wait_for(waiting, SOON)) == ["x"]


async def test_not_served_from_other_lanes(make_queue: MakeQueue) -> None:
    queue, other = make_queue(), make_queue()
    await queue.size()
    async with background(queue.lease(wait=HOUR, lanes=["a"], steal=["b"])) as waiting:
        await seated(queue)
        await other.enqueue(["c"], lane="c")
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
        await other.enqueue(["b"], lane="b")
        assert items(await asyncio.wait_for(waiting, SOON)) == ["b"]


async def test_no_lanes_at_all_is_waited_for_in_vain(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    await queue.enqueue(["x"])
    assert await queue.lease(lanes=[]) == []
    async with background(queue.lease(wait=60.0, lanes=[])) as waiting:
        await as_time_passes(clock, is_done(waiting), step=5.0)
        assert waiting.result() == []
    assert await queue.dequeue() == ["x"]


@transactional
async def test_woken_exactly_when_a_request_is_due(queue: KVStoreQueue, clock: ManualClock) -> None:
    await queue.enqueue(["x"], delay=5.0)
    async with background(queue.lease(wait=HOUR)) as waiting:
        await seated(queue)
        clock.advance(4.999999)
        await asyncio.wait([waiting], timeout=0.02)
        assert not waiting.done()
        clock.advance(0.000001)
        assert items(await asyncio.wait_for(waiting, SOON)) == ["x"]


@transactional
async def test_a_sooner_delay_shortens_the_wait(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(["late"], delay=9.0)
    async with background(queue.lease(wait=HOUR)) as waiting:
        await seated(queue)
        await other.enqueue(["soon"], delay=2.0)
        await spin(500)
        clock.advance(2.0)
        assert items(await asyncio.wait_for(waiting, SOON)) == ["soon"]


@pytest.mark.parametrize("sooner", [False, True], ids=["as it was", "told of while waiting"])
async def test_due_by_the_real_clock(make_queue: MakeQueue, sooner: bool) -> None:
    """On every store, a delayed request is delivered soon after it is due and never before."""
    queue, other = make_queue(clock=SYSTEM_CLOCK), make_queue(clock=SYSTEM_CLOCK)
    began = time.monotonic()
    await queue.enqueue(["late"], delay=HOUR if sooner else 0.3)
    async with background(queue.lease(wait=60.0)) as waiting:
        await seated(queue)
        if sooner:
            began = time.monotonic()
            await other.enqueue(["late"], delay=0.3)
        assert items(await asyncio.wait_for(waiting, SOON)) == ["late"]
    assert time.monotonic() - began >= 0.3


async def test_a_gate_opens_by_the_real_clock(make_queue: MakeQueue) -> None:
    queue = make_queue(clock=SYSTEM_CLOCK)
    await queue.shut("a", 0.2)
    await queue.enqueue(["x"], lane="a")
    assert items(await asyncio.wait_for(queue.lease(wait=60.0), SOON)) == ["x"]


async def test_many_waiters_share_what_comes(make_queue: MakeQueue) -> None:
    queues = [make_queue(), make_queue()]
    for queue in queues:
        await queue.size()
    waiting = [
        asyncio.ensure_future(queue.lease(2, wait=HOUR)) for queue in queues for _ in range(10)
    ]
    for queue in queues:
        await seated(queue, 10)
    await queues[0].enqueue(range(100))
    got = [items(leases) for leases in await asyncio.wait_for(asyncio.gather(*waiting), SOON)]
    assert all(1 <= len(one) <= 2 for one in got)
    taken = [item for one in got for item in one]
    assert len(set(taken)) == len(taken)
    stats = await accounted(queues[0])
    for queue in queues:
        await settled(queue)
    assert stats.ready + stats.leased == 100


async def test_one_after_another_none_is_forgotten(make_queue: MakeQueue) -> None:
    """Many wait, few come at a time: whoever is woken in vain or passed over is woken again."""
    queues = [make_queue(), make_queue()]
    for queue in queues:
        await queue.size()
    waiting = [asyncio.ensure_future(q.lease(wait=HOUR)) for q in queues for _ in range(8)]
    for queue in queues:
        await seated(queue, 8)
    for number in range(16):
        await queues[number % 2].enqueue([number])
    got = await asyncio.wait_for(asyncio.gather(*waiting), SOON * 2)
    assert sorted(item for leases in got for item in items(leases)) == list(range(16))


@pytest.mark.parametrize("wait", [-1, float("nan"), True, "5", None, 1e18, 2**63])
async def test_a_wait_that_cannot_be(queue: KVStoreQueue, wait: Any) -> None:
    with pytest.raises(ValidationError, match="wait"):
        await queue.lease(wait=wait)


async def test_for_ever_is_a_wait(queue: KVStoreQueue) -> None:
    await queue.size()
    async with background(queue.lease(wait=float("inf"))) as waiting:
        await seated(queue)
        await queue.enqueue(["x"])
        assert items(await asyncio.wait_for(waiting, SOON)) == ["x"]


async def test_shutdown_wakes_all_who_wait(queue: KVStoreQueue) -> None:
    await queue.size()
    waiting = [
        asyncio.ensure_future(queue.lease(wait=HOUR, lanes=lanes)) for lanes in (None, ["a"], [])
    ]
    await seated(queue, 3)
    await queue.shutdown()
    assert await asyncio.wait_for(asyncio.gather(*waiting), SOON) == [[], [], []]


async def test_close_sends_all_away_who_wait(queue: KVStoreQueue) -> None:
    known = foreign_tasks(set())
    await queue.size()
    waiting = asyncio.ensure_future(queue.lease(wait=HOUR))
    await seated(queue)
    await queue.close()
    assert await asyncio.wait_for(waiting, SOON) == []
    assert foreign_tasks(known) == set()


async def test_a_waiter_that_gives_up_loses_nothing(make_queue: MakeQueue) -> None:
    queue = make_queue()
    await queue.size()
    for number in range(20):
        waiting = asyncio.ensure_future(queue.lease(wait=HOUR))
        await seated(queue)
        await queue.enqueue([number])
        await spin(number)
        waiting.cancel()
        await asyncio.wait([waiting])
        await settled(queue)
        if not waiting.cancelled():
            await waiting.result()[0].give_back()
        assert await places(queue) == {"ready": 1}
        assert await queue.dequeue(9) == [number]


async def test_an_error_while_waiting_is_raised_to_each(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue()
    await queue.size()
    engine = (await client_of(queue)).engine
    gone = asyncio.Event()

    async def fail(*_: Any) -> None:
        await gone.wait()
        raise StoreLost("gone")

    monkeypatch.setattr(engine, "wait_for_work", fail)
    waiting = [asyncio.ensure_future(queue.lease(wait=HOUR)) for _ in range(3)]
    await seated(queue, 3)
    gone.set()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreLost] * 3


@pytest.mark.parametrize("wait", [60.0, float("inf")])
async def test_an_error_that_ends_the_waiting_keeps_no_lease(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, wait: float
) -> None:
    """Not even with somebody who keeps the error that he was told of the same."""
    queue = make_queue()
    await queue.enqueue(["a"])
    engine = (await client_of(queue)).engine

    holds_one = asyncio.Event()

    async def hold_one_and_wait() -> None:
        (held,) = await queue.lease()
        holds_one.set()
        await seated(queue)
        with pytest.raises(StoreLost):
            await queue.lease(wait=wait)
        assert held.item == "a"

    async def fail(*_: Any) -> None:
        raise StoreLost("gone")

    async with background(hold_one_and_wait()) as holding:
        await holds_one.wait()
        async with background(failure_of(queue.lease(wait=wait))) as beside:
            await seated(queue, 2)
            gc.disable()
            try:
                with monkeypatch.context() as patched:
                    patched.setattr(engine, "lease", fail)
                    (await queue.open_session()).rooms.wake_all()
                    await holding
                    kept = await beside
                await beat_twice(queue)
                assert (type(kept), await places(queue)) == (StoreLost, {"ready": 1})
            finally:
                gc.enable()


async def test_cancelled_just_when_waiting_fails_it_is_cancelled(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue()
    await queue.size()
    engine = (await client_of(queue)).engine
    waiting = asyncio.ensure_future(queue.lease(wait=float("inf")))

    async def cancel_and_fail(*_: Any) -> None:
        waiting.cancel()
        raise StoreLost("gone")

    monkeypatch.setattr(engine, "wait_for_work", cancel_and_fail)
    await asyncio.wait([waiting])
    assert waiting.cancelled(), "a cancellation must not be swallowed"


async def test_a_bad_request_at_the_front_does_not_keep_who_waits(
    make_queue: MakeQueue,
) -> None:
    """The first one cannot be read and is buried; the second is there, so nobody waits for it."""

    queue = make_queue(serializer=Picky())
    await queue.enqueue(["unreadable", "fine"])
    assert items(await asyncio.wait_for(queue.lease(wait=HOUR), SOON)) == ["fine"]
    await settled(queue)
    assert await places(queue) == {"leased": 1, "dead": 1}


class Picky:
    """A serializer that cannot read everything it has written."""

    def dumps(self, obj: Any) -> str:
        return str(obj)

    def loads(self, data: str) -> Any:
        if data == "unreadable":
            raise ValueError(data)
        return data


@pytest.mark.parametrize("bad", [1, 2])
async def test_of_those_who_ask_together_none_goes_without_for_a_bad_request(
    make_queue: MakeQueue, bad: int
) -> None:
    queue = make_queue(serializer=Picky())
    await queue.lease()
    await queue.enqueue(["unreadable"] * bad + ["a", "b", "c", "d"])
    got = await asyncio.gather(queue.lease(), queue.lease(), queue.lease())
    assert sorted(item for leases in got for item in items(leases)) == ["a", "b", "c"]
    assert await asyncio.gather(queue.dequeue(), queue.dequeue()) in ([["d"], []], [[], ["d"]])
    await settled(queue)
    assert await places(queue) == {"leased": 3, "dead": bad}


@pytest.mark.parametrize("waiters", [1, 3])
@pytest.mark.parametrize("bad", [1, 2, 5])
async def test_who_waits_gets_what_is_behind_a_bad_request(
    make_queue: MakeQueue, waiters: int, bad: int
) -> None:
    queue, other = make_queue(serializer=Picky()), make_queue(serializer=Picky())
    await queue.lease()
    waiting = [asyncio.ensure_future(queue.lease(wait=HOUR)) for _ in range(waiters)]
    await seated(queue, waiters)
    await other.enqueue(["unreadable"] * bad + ["fine"] * waiters)
    got = await asyncio.wait_for(asyncio.gather(*waiting), SOON)
    assert [items(leases) for leases in got] == [["fine"]] * waiters
    await settled(queue)
    assert await places(other) == {"leased": waiters, "dead": bad}


@transactional
async def test_what_cannot_be_read_is_asked_for_once(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """Who got nothing for its sake looks again, and then waits like everybody."""
    queue = make_queue(serializer=Picky())
    await queue.lease()
    asked = _counted(queue._engine)
    await queue.enqueue(["unreadable"] * 3)
    async with background(queue.lease(wait=HOUR)) as waiting:
        await seated(queue)
        await queue.enqueue(["unreadable"] * 3)
        await settled(queue)
        await spin(500)
        assert not waiting.done()
        assert len(asked) <= 2 * 3 + 4, len(asked)


@pytest.mark.parametrize("want", [1, 2])
async def test_an_expired_request_at_the_front_hides_nothing(
    queue: KVStoreQueue, clock: ManualClock, want: int
) -> None:
    await queue.enqueue([Entry("old", expires_in=1.0), "fine"])
    clock.advance(1.0)
    assert items(await queue.lease(want)) == ["fine"]


# --- what waiting costs ------------------------------------------------------------------------


@transactional
async def test_an_idle_worker_asks_at_most_once_a_second(
    make_queue: MakeQueue, open_store: OpenStore, clock: ManualClock
) -> None:
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    await queue.size()
    async with background(queue.lease(wait=float("inf"))):
        await seated(queue)
        before = store.faults.calls[store.verb]
        for _ in range(600):
            clock.advance(0.1)
            await spin(10)
        assert store.faults.calls[store.verb] - before <= 60


async def test_a_queue_that_does_nothing_asks_nothing(
    make_queue: MakeQueue, open_store: OpenStore, clock: ManualClock
) -> None:
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    await queue.enqueue(["x"])
    await queue.dequeue()
    for _ in range(100):
        clock.advance(1.0)
        await asyncio.sleep(0.001)
    before = store.faults.calls[store.verb]
    for _ in range(100):
        clock.advance(1.0)
        await asyncio.sleep(0.001)
    assert store.faults.calls[store.verb] == before


# --- for room ----------------------------------------------------------------------------------


async def test_a_full_queue_makes_enqueue_wait(make_queue: MakeQueue) -> None:
    queue = make_queue(capacity=3)
    async with background(queue.enqueue(range(7))) as adding:
        await eventually(_has(queue, 3))
        assert not adding.done()
        assert await queue.dequeue(2) == [0, 1]
        await eventually(_has(queue, 3))
        assert not adding.done()
        assert await queue.dequeue(3) == [2, 3, 4]
        enqueued = await asyncio.wait_for(adding, SOON)
    assert (enqueued, len(enqueued.ids)) == (7, 7)
    assert await queue.dequeue(9) == [5, 6]


def _has(queue: KVStoreQueue, size: int) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return await queue.size() == size

    return look


async def test_room_made_by_another_process(make_queue: MakeQueue) -> None:
    queue, other = make_queue(capacity=2), make_queue()
    await queue.size()
    async with background(queue.enqueue(range(4))) as adding:
        await eventually(_has(other, 2))
        assert sorted(await other.dequeue(9)) == [0, 1]
        assert await asyncio.wait_for(adding, SOON) == 4


async def clear(queue: KVStoreQueue) -> None:
    await queue.clear()


async def lease_one(queue: KVStoreQueue) -> None:
    await queue.lease()


async def cancel_one(queue: KVStoreQueue) -> None:
    await queue.cancel(["a"])


@pytest.mark.parametrize("act", [clear, lease_one, cancel_one])
async def test_room_is_made_by_whatever_takes_away(
    make_queue: MakeQueue, act: Callable[[KVStoreQueue], Awaitable[None]]
) -> None:
    queue, other = make_queue(capacity=1), make_queue()
    await queue.enqueue([Entry("a", id="a")])
    async with background(queue.enqueue(["b"])) as adding:
        await spin(100)
        assert not adding.done()
        await act(other)
        assert await asyncio.wait_for(adding, SOON) == 1


async def test_a_full_queue_raises_where_that_was_asked(make_queue: MakeQueue) -> None:
    queue, other = make_queue(capacity=3), make_queue(on_full="raise")
    await queue.enqueue([1])
    with pytest.raises(QueueFull, match="3 requests") as caught:
        await other.enqueue(range(10, 20))
    assert caught.value.accepted == 2
    assert await queue.dequeue(9) == [1, 10, 11]


async def test_duplicates_enter_a_full_queue(make_queue: MakeQueue) -> None:
    queue = make_queue(capacity=1, on_full="raise")
    await queue.enqueue([Entry("x", key="k")])
    assert await queue.enqueue([Entry("again", key="k")]) == 0


async def test_capacity_binds_enqueue_alone(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = make_queue(capacity=2, on_full="raise")
    await queue.enqueue(["a", "b"])
    first, second = await queue.lease(2)
    await queue.enqueue(["c", "d"])
    await first.complete(enqueue=["child", "child"])
    await second.release(delay=1.0)
    assert await queue.size() == 5
    with pytest.raises(QueueFull) as caught:
        await queue.enqueue(["e"])
    assert caught.value.accepted == 0
    clock.advance(1.0)
    assert len(await queue.dequeue(9)) == 5


async def test_a_checkpoint_waits_for_room_for_all_of_its_requests(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(capacity=3)
    await queue.enqueue(["a", "b"])
    async with background(queue.enqueue(["c", "d"], checkpoint={"at": 1})) as adding:
        await spin(200)
        assert await queue.size() == 2
        assert await queue.checkpoint("at") is None
        await queue.dequeue()
        assert await asyncio.wait_for(adding, SOON) == 2
    assert await queue.checkpoint("at") == 1
    assert await queue.peek(9) == ["b", "c", "d"]


async def test_a_checkpoint_that_never_fits_is_refused(make_queue: MakeQueue) -> None:
    queue = make_queue(capacity=3)
    with pytest.raises(ValidationError, match="3 is the most"):
        await queue.enqueue(range(4), checkpoint={"at": 1})


async def test_who_gives_up_waiting_for_room_leaves_what_was_accepted(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(capacity=2)
    async with background(queue.enqueue(range(5))):
        await eventually(_has(queue, 2))
    await queue.dequeue(1)
    await settled(queue)
    assert await queue.peek(9) == [1]


async def test_a_shutdown_ends_the_wait_for_room(make_queue: MakeQueue) -> None:
    """It takes nothing new: who waits to enqueue will never be let in by this process."""
    queue = make_queue(capacity=1)
    async with background(_outcome(queue.enqueue(["a", "b"]))) as adding:
        await eventually(_has(queue, 1))
        await queue.shutdown()
        assert await asyncio.wait_for(adding, SOON) == ("QueueClosed", 1)


async def _outcome(work: Awaitable[Any]) -> tuple[str, int]:
    try:
        return "new", int(await work)
    except Exception as error:  # noqa: BLE001 - its name and what it says are looked at
        return type(error).__name__, getattr(error, "accepted", -1)


# --- between processes -------------------------------------------------------------------------


@pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)
async def test_woken_by_another_process(make_queue: MakeQueue, store_url: str) -> None:
    queue = make_queue(clock=SYSTEM_CLOCK)
    await queue.size()
    with child("wait", store_url) as process:
        assert said(process) == "waiting"
        await queue.enqueue(["from here"])
        assert await asyncio.to_thread(said, process) == ["from here"]


@pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)
async def test_those_who_wait_do_not_wake_each_other(make_queue: MakeQueue) -> None:
    """A look that found nothing is written down, as a heartbeat; that is no news to the others."""
    queues = [make_queue(clock=SYSTEM_CLOCK) for _ in range(3)]
    asked = [_counted(queue._engine) for queue in queues]
    await asyncio.gather(*(queue.lease(wait=1.5) for queue in queues))
    assert all(len(leases) <= 6 for leases in asked), [len(leases) for leases in asked]


def _counted(engine: Any) -> list[object]:
    """Grows with each time the engine is asked for leases."""
    asked: list[object] = []
    plain = engine.lease

    async def lease(*args: Any, **rest: Any) -> Any:
        asked.append(args)
        return await plain(*args, **rest)

    engine.lease = lease
    return asked


async def test_a_store_is_not_kept_by_those_who_waited_for_it(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "run.db")
    queue = KVStoreQueue(store, "fetch:t", clock=SYSTEM_CLOCK)
    await queue.lease(wait=0.1)
    await queue.close()
    await store.close()
    forgotten = weakref.ref(store)
    del queue, store
    gc.collect()
    assert forgotten() is None


@pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)
async def test_who_waits_beside_a_busy_process_is_not_kept_awake(make_queue: MakeQueue) -> None:
    """It looks twenty times a second, however often there is something to see."""
    queue, busy = make_queue(clock=SYSTEM_CLOCK), make_queue(clock=SYSTEM_CLOCK)
    asked = _counted(queue._engine)
    async with background(queue.lease(wait=1.0, lanes=["idle"])) as waiting:
        while not waiting.done():
            await busy.enqueue(["x"])
            await busy.dequeue()
    assert len(asked) <= 30, len(asked)
