"""``queue.leases()``: prefetching, pacing, ending, and what happens to a buffer nobody reads."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from data_fetcher_core import Entry, Lease
from data_fetcher_core.clock import SYSTEM_CLOCK
from data_fetcher_core.errors import ValidationError
from data_fetcher_core.queue import KVStoreQueue, stream, waiting
from data_fetcher_core.queue.stream import LeaseStream
from data_fetcher_core.testing import ManualClock
from tests.conftest import MakeQueue
from tests.harness import (
    accounted,
    as_time_passes,
    asleep,
    background,
    beat_twice,
    client_of,
    eventually,
    places,
    settled,
    silence,
    spin,
)

HOUR = 3600.0


def is_done(task: asyncio.Task[Any]) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return task.done()

    return look


async def completed(leases: AsyncIterator[Lease]) -> list[Any]:
    """Complete all that a stream gives; what that was."""
    taken = []
    async for lease in leases:
        async with lease:
            taken.append(lease.item)
    return taken


# --- one after another -------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [1, 3, 64])
async def test_all_come_in_order_and_then_it_ends(queue: KVStoreQueue, prefetch: int) -> None:
    await queue.enqueue(range(20))
    assert await completed(queue.leases(prefetch, until="drained")) == list(range(20))
    assert (await accounted(queue)).completed == 20


async def test_it_takes_as_many_as_it_may_prefetch(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(9))
    stream = queue.leases(prefetch=4)
    lease = await anext(stream)
    assert await places(queue) == {"ready": 5, "leased": 4}
    await lease.complete()
    assert [(await anext(stream)).item for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("prefetch", [0, -1, True, "5", 1.5, None])
def test_a_prefetch_that_cannot_be(queue: KVStoreQueue, prefetch: Any) -> None:
    with pytest.raises(ValidationError, match="prefetch"):
        queue.leases(prefetch)


@pytest.mark.parametrize("until", ["", "Drained", None, 5])
def test_an_end_that_cannot_be(queue: KVStoreQueue, until: Any) -> None:
    with pytest.raises(ValidationError, match="until"):
        queue.leases(until=until)


async def test_only_from_its_lanes(queue: KVStoreQueue) -> None:
    await queue.enqueue([Entry(lane + str(n), lane=lane) for lane in "abc" for n in range(2)])
    stream = queue.leases(prefetch=9, lanes=["a"], steal=["b"])
    taken = [(await anext(stream)).item for _ in range(4)]
    assert (sorted(taken[:2]), sorted(taken[2:])) == (["a0", "a1"], ["b0", "b1"])
    assert await queue.peek(9) == ["c0", "c1"]


async def test_it_waits_for_what_comes(make_queue: MakeQueue) -> None:
    queue, other = make_queue(), make_queue()
    async with background(_first(queue.leases())) as reading:
        await spin()
        await other.enqueue(["late"])
        await eventually(is_done(reading))
        assert reading.result() == "late"


async def _first(stream: LeaseStream) -> Any:
    return (await anext(stream)).item


async def test_cancelled_while_it_waits_it_may_be_asked_again(queue: KVStoreQueue) -> None:
    stream = queue.leases(prefetch=2)
    for _ in range(3):
        async with background(_first(stream)):
            await spin(50)
    await queue.enqueue(["x"])
    assert await _first(stream) == "x"
    assert await places(queue) == {"leased": 1}


# --- how it ends -------------------------------------------------------------------------------


async def test_drained_at_once_when_there_is_nothing(queue: KVStoreQueue) -> None:
    assert await completed(queue.leases(until="drained")) == []


async def test_two_consumers_both_end_and_neither_too_early(make_queue: MakeQueue) -> None:
    """The second has nothing to do, but the page that the first holds may still have links."""
    first, second = make_queue(), make_queue()
    await first.enqueue(["page"])
    stream = first.leases(until="drained")
    page = await anext(stream)
    async with background(completed(second.leases(until="drained"))) as other:
        await asyncio.wait([other], timeout=0.05)
        assert not other.done()
        await page.complete(enqueue=["link"])
        done = asyncio.ensure_future(completed(stream))
        await asyncio.wait([other, done])
        assert [*other.result(), *done.result()] == ["link"]
    assert (await accounted(first)).completed == 2


async def test_those_who_come_together_take_no_more_than_they_work_on(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    """What they took beyond that would be out of everybody's reach."""
    await queue.enqueue(range(20))
    stream = queue.leases()
    held = await asyncio.gather(*(anext(stream) for _ in range(4)))
    assert (await queue.stats()).leased == 4
    clock.advance(HOUR)
    for lease in held:
        await lease.complete()
    held = await asyncio.gather(*(anext(stream) for _ in range(4)))
    assert (await queue.stats()).leased == 4
    del held


async def test_all_are_told_of_the_end(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to look for it: one is told, and tells the next."""
    monkeypatch.setattr(waiting, "_DRAINED_WAIT", HOUR)
    worker, *others = [make_queue() for _ in range(4)]
    await worker.enqueue(["page"])
    (page,) = await worker.lease()
    async with asyncio.timeout(8), asyncio.TaskGroup() as group:
        for other in others:
            group.create_task(completed(other.leases(until="drained")))
        await asleep(*others)
        await page.complete()


async def test_the_end_is_not_slept_through_because_somebody_else_looked(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes between the look that found nothing and the sleep; another sees it meanwhile."""
    monkeypatch.setattr(waiting, "_DRAINED_WAIT", HOUR)
    worker, reader, other = make_queue(), make_queue(), make_queue()
    await worker.enqueue(["page"])
    (page,) = await worker.lease()
    engine = (await client_of(reader)).engine
    wait_for_work = engine.wait_for_work

    async def late(*question: Any) -> None:
        monkeypatch.setattr(engine, "wait_for_work", wait_for_work)
        await page.complete()
        assert await other.lease() == []
        await wait_for_work(*question)

    monkeypatch.setattr(engine, "wait_for_work", late)
    async with asyncio.timeout(8):
        assert await completed(reader.leases(until="drained")) == []


async def test_what_is_delayed_is_waited_for(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(["later"], delay=60.0)
    async with background(completed(queue.leases(until="drained"))) as reading:
        await spin(200)
        clock.advance(59.0)
        await asyncio.wait([reading], timeout=0.05)
        assert not reading.done()
        clock.advance(1.0)
        # Where waiting takes the store's own time, a step of anybody tells that it is due.
        await other.enqueue(["nudge"])
        await eventually(is_done(reading))
        assert "later" in reading.result()


async def test_a_failure_is_tried_again_before_it_is_drained(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    await queue.enqueue(["x"])
    seen = []

    async def work() -> None:
        async for lease in queue.leases(until="drained"):
            async with lease:
                seen.append(lease.attempts)
                if lease.attempts == 0:
                    clock.advance(1.0)
                    raise ValueError("once")

    async with background(work()) as working:
        await as_time_passes(clock, is_done(working))
        working.result()
    assert seen == [0, 1]


async def test_shutdown_ends_it_after_what_is_ready(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(5))
    stream = queue.leases(prefetch=2)
    first = await anext(stream)
    await queue.shutdown()
    await first.complete()
    assert await completed(stream) == [1, 2, 3, 4]


@pytest.mark.parametrize("until", ["closed", "drained"])
async def test_shutdown_wakes_who_waits(queue: KVStoreQueue, until: Any) -> None:
    await queue.enqueue(["held"])
    held = await queue.lease()
    async with background(completed(queue.leases(until=until))) as reading:
        await spin(200)
        await queue.shutdown()
        await eventually(is_done(reading))
        assert reading.result() == []
    assert len(held) == 1


async def test_after_close_it_begins_anew(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(4))
    stream = queue.leases(prefetch=3)
    await anext(stream)
    await queue.close()
    assert await places(queue) == {"ready": 4}
    assert sorted([(await anext(stream)).item for _ in range(4)]) == [0, 1, 2, 3]
    assert await places(queue) == {"leased": 4}


# --- a buffer that nobody reads ----------------------------------------------------------------


async def test_a_break_gives_the_buffer_back_by_the_heartbeat(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(6))
    async for lease in queue.leases(prefetch=5):
        await lease.complete()
        break
    await spin()
    gc.collect()
    await beat_twice(queue)
    assert await places(queue) == {"ready": 5}
    again = await queue.lease(9)
    assert {(lease.attempts, lease.deaths) for lease in again} == {(0, 0)}


async def test_a_break_is_noticed_by_the_heart_itself(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    await queue.enqueue(range(6))
    async for lease in queue.leases(prefetch=5):
        await lease.complete()
        break
    await spin()
    gc.collect()

    async def returned() -> bool:
        return await places(queue) == {"ready": 5}

    await as_time_passes(clock, returned)


async def test_aclose_gives_the_buffer_back_at_once(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(6))
    stream = queue.leases(prefetch=5)
    lease = await anext(stream)
    await stream.aclose()
    await settled(queue)
    assert await places(queue) == {"ready": 5, "leased": 1}
    assert await queue.peek(9) == [1, 2, 3, 4, 5]
    await lease.complete()


async def test_as_a_context_it_gives_back_whatever_happens(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(4))
    with suppress(ZeroDivisionError):
        async with queue.leases(prefetch=4) as stream:
            await anext(stream)
            raise ZeroDivisionError
    await settled(queue)
    assert (await queue.stats()).ready == 3


async def test_an_idle_stream_keeps_nothing_from_the_others(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = make_queue()
    await queue.enqueue(range(5))
    stream = queue.leases(prefetch=4)
    lease = await anext(stream)

    async def returned() -> bool:
        return await places(queue) == {"ready": 4, "leased": 1}

    clock.advance(25.0)
    await spin()
    assert await places(queue) == {"ready": 1, "leased": 4}
    await as_time_passes(clock, returned)
    await lease.complete()
    assert (await anext(stream)).item == 1, "and it may be read again"


async def test_a_buffer_that_was_taken_up_by_others_is_not_handed_out(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, survivor = make_queue(), make_queue()
    await queue.enqueue(range(3))
    stream = queue.leases(prefetch=3)
    await anext(stream)
    await (await client_of(queue)).tasks.cancel()
    await silence(survivor, clock)
    theirs = await survivor.lease(9)
    assert len(theirs) == 3
    async with background(_first(stream)) as reading:
        await asyncio.wait([reading], timeout=0.05)
        assert not reading.done()
        await survivor.enqueue(["new"])
        await eventually(is_done(reading))
        assert reading.result() == "new"


async def test_after_a_silence_every_stream_is_proved_not_only_the_first_that_is_read(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, survivor = make_queue(), make_queue()
    await queue.enqueue(range(6))
    streams = [queue.leases(prefetch=3), queue.leases(prefetch=3)]
    held = [await anext(stream) for stream in streams]
    await (await client_of(queue)).tasks.cancel()
    await silence(survivor, clock)
    assert len(await survivor.lease(9)) == 6
    async with background(_first(streams[0])) as one, background(_first(streams[1])) as other:
        await asyncio.wait([one, other], timeout=0.05)
        assert not one.done()
        assert not other.done()
    assert len(held) == 2


async def test_an_answer_that_was_long_on_its_way_does_not_end_a_silence(
    make_queue: MakeQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked in time; but it reached the store after others had taken this process for dead."""
    queue, survivor = make_queue(), make_queue()
    await queue.enqueue(range(3))
    stream = queue.leases(prefetch=3)
    await anext(stream)
    client = await client_of(queue)
    await client.tasks.cancel()
    await survivor.sweep()
    clock.advance(29.0)
    beat = client.engine.beat

    async def late(name: bytes) -> Any:
        clock.advance(2.0)
        await survivor.sweep()
        return await beat(name)

    monkeypatch.setattr(client.engine, "beat", late)
    await queue.sweep()
    taken = await survivor.lease(9)
    assert len(taken) == 3
    async with background(_first(stream)) as reading:
        await asyncio.wait([reading], timeout=0.05)
        assert not reading.done()
    assert len(taken) == 3


async def test_buffers_are_dropped_with_the_queue(make_queue: MakeQueue) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(range(4))
    stream = queue.leases(prefetch=4)
    await anext(stream)
    await queue.close()
    assert sorted(await other.dequeue(9)) == [0, 1, 2, 3]


# --- lanes with an interval --------------------------------------------------------------------


async def test_at_most_one_of_a_paced_lane_is_prefetched(make_queue: MakeQueue) -> None:
    queue = make_queue(lane_interval=1.0, lane_burst=3)
    await queue.enqueue([Entry(f"{lane}{n}", lane=lane) for lane in "ab" for n in range(5)])
    stream = queue.leases(prefetch=20)
    first = await anext(stream)
    await settled(queue)
    assert await places(queue) == {"ready": 8, "leased": 2}
    assert {first.item, (await anext(stream)).item} == {"a0", "b0"}


async def starts(
    queue: KVStoreQueue, clock: ManualClock, count: int, step: float
) -> dict[str, list[float]]:
    """Read a stream as time passes; when each lane was started."""
    started: dict[str, list[float]] = defaultdict(list)

    async def read() -> None:
        stream = queue.leases(prefetch=10)
        for _ in range(count):
            async with await anext(stream) as lease:
                started[lease.lane].append(clock.monotonic())

    async with background(read()) as reading:
        await as_time_passes(clock, is_done(reading), step)
        reading.result()
    return started


@pytest.mark.parametrize("burst", [0, 2])
@pytest.mark.parametrize("store_kind", ["memory", "sqlite"], indirect=True)
async def test_a_paced_lane_is_started_no_sooner_than_its_interval(
    make_queue: MakeQueue, clock: ManualClock, store_kind: str, burst: int
) -> None:
    queue = make_queue(lane_interval=2.0, lane_burst=burst)
    await queue.enqueue([Entry(n, lane="ab"[n % 2]) for n in range(8)])
    for lane, instants in (await starts(queue, clock, 8, step=0.25)).items():
        gaps = [after - before for before, after in itertools.pairwise(instants)]
        assert min(gaps) >= 2.0, (lane, instants)
        # SQLite's thread takes real time, which this clock knows nothing of.
        assert store_kind == "sqlite" or max(gaps) <= 4.0, (lane, instants)


async def test_a_paced_lane_by_the_real_clock(make_queue: MakeQueue) -> None:
    """As above where waiting takes the store's own time; two streams share the lane."""
    queues = [make_queue(clock=SYSTEM_CLOCK, lane_interval=0.1) for _ in range(2)]
    await queues[0].enqueue(range(6), lane="a")
    started: list[float] = []
    # The store spaces what it hands out; the first may have been handed out long before it starts.
    began = time.monotonic()

    async def read(queue: KVStoreQueue) -> None:
        async for lease in queue.leases(prefetch=5, until="drained"):
            started.append(time.monotonic())
            await lease.complete()

    await asyncio.gather(*map(read, queues))
    assert len(started) == 6
    assert started[-1] - began >= 0.5


async def test_a_paced_lane_holds_up_no_other(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = make_queue()
    await queue.pace("slow", interval=HOUR)
    await queue.enqueue([Entry(f"slow{n}", lane="slow") for n in range(3)])
    await queue.enqueue([Entry(f"fast{n}", lane="fast") for n in range(6)])
    stream = queue.leases(prefetch=4)
    taken = [(await anext(stream)).item for _ in range(7)]
    assert sorted(taken) == [*(f"fast{n}" for n in range(6)), "slow0"]


async def not_yet_due(queue: KVStoreQueue, clock: ManualClock) -> LeaseStream:
    """A stream that has leased a request of a slow lane, which may begin in 8 seconds only.

    The one before it was begun 9 seconds after it had been leased.
    """
    await queue.pace("slow", interval=10.0)
    await queue.enqueue([Entry("fast0", lane="fast"), Entry("slow0", lane="slow")])
    stream = queue.leases(prefetch=2)
    await (await anext(stream)).complete()
    clock.advance(9.0)
    await (await anext(stream)).complete()
    await queue.enqueue([Entry("slow1", lane="slow")])
    clock.advance(2.0)
    return stream


async def test_one_that_may_not_begin_yet_holds_up_no_other(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    stream = await not_yet_due(queue, clock)
    async with background(anext(stream)) as first, background(anext(stream)) as second:
        await eventually(_holds(queue, 1))
        await queue.enqueue([Entry("fast1", lane="fast")])
        await eventually(_any_of(first, second))
        begun, waiting = (first, second) if first.done() else (second, first)
        assert begun.result().item == "fast1"
        assert not waiting.done()
        await as_time_passes(clock, is_done(waiting), 0.5)
        assert waiting.result().item == "slow1"


async def test_at_shutdown_who_may_not_begin_yet_is_waited_for(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    stream = await not_yet_due(queue, clock)
    async with background(completed(stream)) as reading:
        await eventually(_holds(queue, 1))
        await queue.shutdown()
        await as_time_passes(clock, is_done(reading), 0.5)
        assert reading.result() == ["slow1"]


def _any_of(*tasks: asyncio.Task[Any]) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return any(task.done() for task in tasks)

    return look


async def test_of_paced_lanes_without_end_so_many_are_remembered(
    make_queue: MakeQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only when the next may begin is remembered, and only until then."""
    monkeypatch.setattr(stream, "_MOST_STARTS", 10)
    queue = make_queue(lane_interval=1.0)
    reader = queue.leases(prefetch=5)
    for number in range(60):
        await queue.enqueue([Entry(number, lane=f"host {number}")])
        await (await anext(reader)).complete()
        clock.advance(0.5)
    held = [len(one) for one in vars(reader).values() if isinstance(one, dict)]
    assert max(held) <= 11


async def test_a_lease_whose_answer_was_long_on_its_way_is_proved_before_it_is_begun(
    make_queue: MakeQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a loop that was blocked: meanwhile others took its process for dead."""
    queue, other = make_queue(), make_queue()
    await queue.enqueue(["page"])
    blocked, survivor = await client_of(queue), await client_of(other)
    lease = blocked.engine.lease

    async def late(*question: Any) -> Any:
        answer = await lease(*question)
        monkeypatch.setattr(blocked.engine, "lease", lease)
        beats = (await survivor.engine.beat(survivor.name)).consumers
        await survivor.engine.reap(blocked.name, beats[blocked.name])
        clock.advance(blocked.options.lease_ttl)
        return answer

    monkeypatch.setattr(blocked.engine, "lease", late)
    begun = await anext(queue.leases())
    assert begun.deaths == 1
    await begun.complete()
    assert (await accounted(queue)).completed == 1


# --- shutting a lane ---------------------------------------------------------------------------


async def test_a_lane_that_is_shut_gives_back_what_was_prefetched(queue: KVStoreQueue) -> None:
    await queue.enqueue([Entry(f"a{n}", lane="a") for n in range(4)])
    await queue.enqueue([Entry(f"b{n}", lane="b") for n in range(2)])
    stream = queue.leases(prefetch=6)
    first = await anext(stream)
    assert first.item == "a0"
    await queue.shut("a", 60.0)
    await settled(queue)
    assert [(await anext(stream)).item for _ in range(2)] == ["b0", "b1"]
    assert await places(queue) == {"ready": 3, "leased": 3}
    assert await queue.peek(9) == ["a1", "a2", "a3"]
    await first.complete()


async def paced_reader(queue: KVStoreQueue, clock: ManualClock) -> LeaseStream:
    """A stream whose buffer holds one request of lane "a" that may not be started yet.

    Its first start here was late, so that the store's gate is open and the stream's is not.
    """
    await queue.pace("a", interval=10.0)
    await queue.enqueue([Entry(n, lane="a") for n in range(3)])
    stream = queue.leases(prefetch=2)
    first = await anext(stream)
    stream._starts["a"] = clock.monotonic() + 20.0
    clock.advance(10.0)
    await first.complete()
    return stream


async def test_shut_while_the_reader_waits_to_start_it(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    stream = await paced_reader(queue, clock)
    async with background(_first(stream)) as reading:
        await eventually(_holds(queue, 1))
        await spin()
        await queue.shut("a", 60.0)
        clock.advance(10.0)
        await queue.enqueue([Entry("other", lane="b")])
        await eventually(is_done(reading))
        assert reading.result() == "other"
    await settled(queue)
    assert (await queue.stats()).ready == 2


def _holds(queue: KVStoreQueue, count: int) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return (await queue.stats()).leased == count

    return look


async def test_an_interval_longer_than_the_lease_ttl(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """The stream is not idle: somebody waits in it."""
    queue = make_queue(lease_ttl=6.0)
    stream = await paced_reader(queue, clock)
    stream._starts["a"] = clock.monotonic() + 30.0
    async with background(_first(stream)) as reading:
        await as_time_passes(clock, is_done(reading))
        assert reading.result() == 1


@pytest.mark.parametrize("paced", [False, True])
async def test_two_tasks_read_one_stream(
    make_queue: MakeQueue, clock: ManualClock, paced: bool
) -> None:
    queue = make_queue(lane_interval=1.0 if paced else 0.0)
    await queue.enqueue([Entry(n, lane=str(n % 2)) for n in range(8)])
    stream = queue.leases(prefetch=4, until="drained")
    reading = [asyncio.ensure_future(completed(stream)) for _ in range(2)]

    async def done() -> bool:
        return all(task.done() for task in reading)

    await as_time_passes(clock, done)
    taken = [item for task in reading for item in task.result()]
    assert sorted(taken) == list(range(8))
    assert (await accounted(queue)).completed == 8
