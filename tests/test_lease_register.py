"""Which leases a process holds: what the store says, what is known here, and who may settle."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from data_fetcher_core import Entry
from data_fetcher_core.errors import LeaseLost, StoreUnavailable
from data_fetcher_core.events import Event, HeartbeatMissed, LeasesReturned
from data_fetcher_core.queue import KVStoreQueue, Lease
from data_fetcher_core.queue.engine import Granted
from data_fetcher_core.testing import Fault, ManualClock, make_faulty
from tests.children import child, said
from tests.conftest import MakeQueue, OpenStore
from tests.harness import (
    accounted,
    as_time_passes,
    background,
    client_of,
    impatient,
    places,
    settled,
    silence,
    spin,
)
from tests.waiting import until

between_processes = pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)
_LOOKS = 6


async def let_go(leases: list[Lease]) -> None:
    leases.clear()
    await spin()
    gc.collect()


def away(store: Any, calls: int = 200, first: Fault = Fault.BEFORE) -> None:
    """Nothing is heard of the store for so many calls; the first may have reached it."""
    store.faults.plan(first, store.verb, 1)
    for call in range(2, calls):
        store.faults.plan(Fault.BEFORE, store.verb, call)


# --- what nobody holds --------------------------------------------------------------------------


async def test_what_nobody_holds_is_given_back_beside_a_lease_that_is_under_way(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    """A busy process has always one under way; what was dropped was kept until it had none."""
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    await queue.enqueue(["kept", "dropped"])
    kept, *dropped = await queue.lease(2)
    await let_go(dropped)
    store.faults.plan(Fault.HANG, store.verb)
    async with background(queue.lease(lanes=["other"])):
        await spin()
        assert (await client_of(queue)).is_leasing
        await queue.sweep()
        assert await places(queue) == {"ready": 1, "leased": 1}
    await kept.complete()


async def test_what_is_on_its_way_here_is_not_given_back(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has granted it; nobody here knows its token yet."""
    queue = make_queue()
    await queue.enqueue(["x"])
    engine, arrived, go_on = (await client_of(queue)).engine, asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(engine, "lease", held_up(engine.lease, arrived, go_on))
    async with background(queue.lease()) as leasing:
        await arrived.wait()
        for _ in range(2):
            await queue.sweep()
        assert await places(queue) == {"leased": 1}
        go_on.set()
        (lease,) = await leasing
    await lease.complete()
    assert (await accounted(queue)).completed == 1


def held_up(
    lease: Callable[..., Awaitable[Granted]], arrived: asyncio.Event, go_on: asyncio.Event
) -> Callable[..., Coroutine[Any, Any, Granted]]:
    async def answered_late(*asked: Any) -> Granted:
        granted = await lease(*asked)
        arrived.set()
        await go_on.wait()
        return granted

    return answered_late


async def test_counts_that_agree_hide_nothing_for_long(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    """One that only we believe to be leased, and one that only the store does: one and one."""
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    await queue.enqueue(["done, and nobody knows", "dropped"])
    known_here, *dropped = await queue.lease(2)
    await impatient(queue)
    away(store, first=Fault.AFTER)
    with pytest.raises(StoreUnavailable):
        await known_here.complete()
    store.faults.heal()
    await impatient(queue, 10.0)
    await let_go(dropped)
    assert len((await client_of(queue)).held) == (await queue.stats()).leased == 1
    for _ in range(_LOOKS):
        await queue.sweep()
    assert await places(queue) == {"ready": 1}


@pytest.mark.parametrize("store_kind", ["memory"], indirect=True)
async def test_which_leases_are_held_is_asked_every_few_beats_and_not_by_the_idle(
    queue: KVStoreQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    engine, looks = (await client_of(queue)).engine, 0
    held = engine.held

    async def counted(name: bytes) -> Any:
        nonlocal looks
        looks += 1
        return await held(name)

    monkeypatch.setattr(engine, "held", counted)
    for _ in range(2 * _LOOKS):
        await queue.sweep()
    assert looks == 2
    await lease.complete()
    for _ in range(2 * _LOOKS):
        await queue.sweep()
    assert looks == 2


async def test_a_heart_goes_on_until_it_has_heard_that_nothing_is_held(
    make_queue: MakeQueue, open_store: OpenStore, clock: ManualClock
) -> None:
    """The answer to a lease was lost, and so was the beat that would have found it."""
    told: list[Event] = []
    store = make_faulty(open_store())
    queue = make_queue(store=store, subscriber=told.append)
    assert await queue.lease() == []
    await queue.enqueue(["x"])
    await impatient(queue)
    away(store, first=Fault.AFTER)
    with pytest.raises(StoreUnavailable):
        await queue.lease()
    clock.advance(5.0)
    await until(lambda: any(isinstance(event, HeartbeatMissed) for event in told))
    store.faults.heal()
    await impatient(queue, 10.0)
    assert await places(queue) == {"leased": 1}

    async def returned() -> bool:
        return LeasesReturned("fetch:test", 1) in told

    await as_time_passes(clock, returned)
    assert await places(queue) == {"ready": 1}


async def test_whatever_goes_wrong_with_a_beat_the_heart_goes_on(
    make_queue: MakeQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    queue = make_queue(subscriber=told.append)
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    engine, beats = (await client_of(queue)).engine, 0
    beat = engine.beat

    async def strange(name: bytes) -> Any:
        nonlocal beats
        beats += 1
        if beats == 1:
            raise UnicodeError("somebody's name is no text")
        return await beat(name)

    async def twice() -> bool:
        return beats >= 2

    monkeypatch.setattr(engine, "beat", strange)
    await as_time_passes(clock, twice)
    assert HeartbeatMissed("fetch:test", "somebody's name is no text") in told
    await lease.complete()


async def test_ever_new_lanes_leave_nothing_behind(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = make_queue()
    for number in range(100):
        await queue.lease(lanes=[f"user {number}"])
    assert len((await client_of(queue))._demands) <= 64
    waiting = [queue.lease(wait=1.0, lanes=[f"user {number}"]) for number in range(10)]
    async with background(asyncio.gather(*waiting)) as served:  # type: ignore[arg-type]
        rooms = (await queue.open_session()).rooms
        await until(lambda: len(rooms._rooms) == 10)

        async def is_over() -> bool:
            rooms.wake_all()  # Or whoever waits on a server would do so for some more seconds.
            return served.done() and not rooms._rooms

        await as_time_passes(clock, is_over)


# --- who may settle ------------------------------------------------------------------------------


@between_processes
async def test_a_fork_settles_nothing_that_it_has_inherited(
    make_queue: MakeQueue, store_url: str
) -> None:
    """It would do so under the number of an operation that its parent sends next."""
    queue = make_queue()
    await queue.enqueue(["first", "second"])
    with child("inherit", store_url) as process:
        assert said(process) == "LeaseLost"
        assert said(process) == ["second", "settled"]
        assert process.wait(20) == 0
    stats = await accounted(queue)
    assert (stats.completed, stats.ready) == (1, 1)


async def test_another_event_loop_settles_nothing(make_queue: MakeQueue) -> None:
    queue = make_queue()
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()

    async def elsewhere() -> None:
        with pytest.raises(LeaseLost, match="another process or event loop"):
            await lease.complete()
        async with lease:
            pass

    await asyncio.to_thread(asyncio.run, elsewhere())
    await lease.complete()
    assert (await accounted(queue)).completed == 1


async def test_a_turn_that_was_waited_for_in_silence_is_not_begun_unproved(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefetched of a lane with an interval, and slept through by the whole process."""
    ours, theirs = ManualClock(), ManualClock()
    queue, other = (make_queue(clock=clock, lane_interval=5.0) for clock in (ours, theirs))

    async def hear_of_nothing(mark: int, timeout: float, lanes: object) -> None:
        await ours.sleep(timeout)

    monkeypatch.setattr((await client_of(queue)).engine, "wait_for_work", hear_of_nothing)
    await queue.enqueue([Entry("y", lane="y"), Entry("x1", lane="x"), Entry("x2", lane="x")])
    stream = queue.leases(prefetch=2)
    await (await anext(stream)).complete()
    pass_on(ours, theirs, 3.0)
    await (await anext(stream)).complete()
    async with background(anext(stream)) as reading:
        await spin()
        pass_on(ours, theirs, 2.0)
        await until(lambda: len(stream.prefetched) == 1)
        # Due at 8 s, as the one before was begun at 3 s.
        await silence(other, theirs)
        (taken,) = await other.lease()
        ours.advance(40.0)
        await until(lambda: not stream.prefetched)
        await spin()
        assert not reading.done()
    assert (taken.item, taken.deaths) == ("x2", 1)
    await taken.complete()


def pass_on(ours: ManualClock, theirs: ManualClock, seconds: float) -> None:
    ours.advance(seconds)
    theirs.advance(seconds)


# --- closing --------------------------------------------------------------------------------------


async def test_a_queue_whose_close_failed_can_be_used(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    await queue.enqueue(["a", "b"])
    left = await queue.lease()
    await impatient(queue)
    away(store)
    with pytest.raises(StoreUnavailable):
        await queue.close()
    store.faults.heal()
    await _goes_on(queue)
    await queue.close()
    assert await places(make_queue()) == {"ready": 2}
    with pytest.raises(LeaseLost):
        await left[0].complete()


async def _goes_on(queue: KVStoreQueue) -> None:
    await queue.enqueue(["c"])
    again = await queue.lease()
    await again[0].complete()
    await settled(queue)
