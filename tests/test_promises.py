"""What is promised, one promise after another, over every store and through crashes.

A crash is what a dead process does: nothing. Its consumer says no more to the store, its store
object is never closed, and another process opens the data again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core import Entry
from data_fetcher_core.errors import (
    StoreUnavailable,
    ValidationError,
)
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.testing import Fault, ManualClock, make_faulty
from tests.conftest import MakeQueue, OpenStore
from tests.harness import (
    accounted,
    background,
    beat_twice,
    client_of,
    crash,
    drain,
    eventually,
    impatient,
    is_lost,
    items,
    letters,
    outlive,
    places,
    settled,
    silence,
    spin,
)
from tests.properties import in_memory, quick

HOUR = 3600.0


# --- 1: accepted is kept -----------------------------------------------------------------------


async def test_accepted_is_kept_through_the_death_of_everybody(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """In every place a request can be in, and then a process that starts anew."""
    queue = make_queue()
    await queue.enqueue([Entry(n, lane="ab"[n % 2]) for n in range(10)])
    await queue.enqueue(["delayed"], delay=60.0)
    buried, released, _held = await queue.lease(3)
    await buried.bury("no")
    await released.release(delay=30.0)
    await crash(queue)
    again = make_queue()
    await silence(again, clock)
    clock.advance(HOUR)
    taken = await drain(again)
    dead = [letter.item for letter in await letters(again)]
    assert sorted(map(str, [*taken, *dead])) == sorted([*map(str, range(10)), "delayed"])
    await accounted(again)


async def test_a_process_that_dies_again_and_again_gets_through(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    await make_queue(max_deaths=100).enqueue(range(30))
    done = []
    for life in range(30):
        queue = make_queue()
        await silence(queue, clock)
        for number, lease in enumerate(await queue.lease(10)):
            if number > life % 3:
                break
            await lease.complete()
            done.append(lease.item)
        await crash(queue)
    assert sorted(done)[:20] == list(range(20)) or len(set(done)) >= 20
    assert len(set(done)) == len(done), "completed twice"


@pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)
async def test_it_is_there_when_the_store_is_opened_again(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store = open_store()
    queue = make_queue(store=store)
    await queue.enqueue(range(5), checkpoint={"at": 5})
    await queue.close()
    await store.close()
    again = make_queue()
    assert await again.dequeue(9) == list(range(5))
    assert await again.checkpoint("at") == 5


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
async def test_a_verb_whose_message_is_lost_happens_once(
    make_queue: MakeQueue, open_store: OpenStore, fault: Fault
) -> None:
    store = make_faulty(open_store())
    queue = make_queue(store=store, op_timeout=1.5 if fault is Fault.HANG else 5.0)
    await queue.enqueue([Entry(n, id=f"id{n}", key=str(n)) for n in range(9)])
    (await queue.open_session())._greeted = True

    async def under_fault(act: Callable[[], Any]) -> Any:
        store.faults.plan(fault, store.verb)
        return await act()

    assert await under_fault(lambda: queue.enqueue(["x"])) == 1
    first, second, third = await under_fault(lambda: queue.lease(3))
    await under_fault(lambda: first.complete(enqueue=["child"]))
    await under_fault(lambda: second.release(error="no"))
    await under_fault(lambda: third.bury("no"))
    await under_fault(lambda: queue.shut("elsewhere", 5.0))
    assert await under_fault(queue.requeue) == 1
    assert await under_fault(lambda: queue.cancel(["id3", "id4"])) == 2
    stats = await accounted(queue)
    assert (stats.ready, stats.leased, stats.completed, stats.dead) == (8, 0, 1, 0)
    assert (stats.enqueued, stats.retried, stats.requeued, stats.cancelled) == (11, 1, 1, 2)
    assert await under_fault(queue.clear) == 8
    assert await under_fault(queue.purge_dead) == 0


async def test_a_store_that_stays_away_is_one_typed_error_in_time(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    await queue.enqueue(["kept"])
    await impatient(queue)
    for call in range(1, 500):
        store.faults.plan(Fault.BEFORE, store.verb, call)
    verbs: list[Callable[[], Any]] = [
        lambda: queue.enqueue(["lost"]),
        queue.lease,
        queue.size,
        queue.peek,
        queue.clear,
        lambda: queue.cancel(["x"]),
        queue.sweep,
        lambda: queue.shut("a", 1.0),
        lambda: letters(queue),
        lambda: anext(queue.leases()),
    ]
    for verb in verbs:
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(verb(), 3.0)
    store.faults.heal()
    await impatient(queue, 10.0)
    await beat_twice(queue)
    assert await queue.dequeue(9) == ["kept"]


async def test_a_store_that_hangs_is_one_typed_error_in_time(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    await queue.size()
    await impatient(queue)
    for verb in (lambda: queue.enqueue(["x"]), queue.size, queue.clear):
        for call in range(1, 50):
            store.faults.plan(Fault.HANG, store.verb, call)
        with pytest.raises(StoreUnavailable, match="did not answer"):
            await asyncio.wait_for(verb(), 3.0)
        store.faults.heal()
    await impatient(queue, 10.0)
    assert await queue.size() == 0


async def test_an_error_of_the_store_reaches_each_caller_as_its_own(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    """Many are in one batch: each gets an error with a traceback of its own, none a group."""
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    await queue.size()
    await impatient(queue)
    for call in range(1, 500):
        store.faults.plan(Fault.BEFORE, store.verb, call)
    calls = [queue.enqueue([n]) for n in range(5)]
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(error) for error in errors} == {StoreUnavailable}
    assert len({id(error) for error in errors}) == 5


# --- 2: one owner ------------------------------------------------------------------------------


async def test_while_it_lives_it_is_the_only_owner(make_queue: MakeQueue) -> None:
    queues = [make_queue() for _ in range(4)]
    await queues[0].enqueue(range(40))
    batches = await asyncio.gather(*(queue.lease(3) for queue in queues for _ in range(5)))
    taken = [lease.item for leases in batches for lease in leases]
    assert sorted(taken) == list(range(40))


async def test_a_lease_is_settled_once(queue: KVStoreQueue) -> None:
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    outcomes = await asyncio.gather(
        *(is_lost(lease.complete(enqueue=["child"])) for _ in range(10))
    )
    assert outcomes.count(False) == 1
    assert await is_lost(lease.release())
    assert await is_lost(lease.bury())
    assert await is_lost(lease.give_back())
    stats = await accounted(queue)
    assert (stats.completed, stats.ready) == (1, 1)


async def test_a_second_owner_settles_and_the_first_does_not(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    first, second = make_queue(), make_queue()
    await first.enqueue(["x"])
    (zombie,) = await first.lease()
    await (await client_of(first)).tasks.cancel()
    await silence(second, clock)
    (lease,) = await second.lease()
    assert await is_lost(zombie.complete(enqueue=["ghost"], checkpoint={"at": 1}, result="ghost"))
    await lease.complete(enqueue=["child"])
    assert await second.dequeue(9) == ["child"]
    assert await second.results() == []
    assert await second.checkpoint("at") is None


# --- 3: settlement is atomic with what it produced ---------------------------------------------


async def test_all_of_a_settlement_or_nothing(queue: KVStoreQueue) -> None:
    await queue.enqueue(["page"])
    (lease,) = await queue.lease()
    bad: list[Any] = [
        {"enqueue": ["link", Entry("link", delay=-1)]},
        {"enqueue": ["link"], "checkpoint": {"at": object()}},
        {"enqueue": ["link"], "checkpoint": {"at": 1}, "result": {1: object()}},
        {"enqueue": ["link"], "checkpoint": {"": 1}},
    ]
    for settlement in bad:
        with pytest.raises(ValidationError):
            await lease.complete(**settlement)
        assert await places(queue) == {"leased": 1}
        assert await queue.checkpoint("at") is None
    enqueued = await lease.complete(enqueue=["link"], checkpoint={"at": 1}, result="done")
    assert (enqueued, await queue.peek()) == (1, ["link"])
    assert await queue.checkpoint("at") == 1
    assert await queue.results() == [(1, "done")]


async def test_children_of_many_pages_at_once_are_deduplicated(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(20))
    leases = await queue.lease(20)
    links = [Entry("link", key="link"), Entry("other", key="other")]
    enqueued = await asyncio.gather(*(lease.complete(enqueue=links) for lease in leases))
    assert sum(enqueued) == 2
    assert len({one.ids for one in enqueued}) == 1
    assert sorted(await queue.dequeue(9)) == ["link", "other"]


@pytest.mark.parametrize("extra", [0, 1])
async def test_ten_thousand_children_are_one_step_and_more_are_refused(
    queue: KVStoreQueue, extra: int
) -> None:
    await queue.enqueue(["page"])
    (lease,) = await queue.lease()
    children = range(10_000 + extra)
    if extra:
        with pytest.raises(ValidationError, match="10000 is the most"):
            await lease.complete(enqueue=children)
        assert await places(queue) == {"leased": 1}
    else:
        assert await lease.complete(enqueue=children) == 10_000
        assert await queue.size() == 10_000


@pytest.mark.parametrize("extra", [0, 1])
async def test_ten_thousand_with_a_checkpoint_and_more_are_refused(
    queue: KVStoreQueue, extra: int
) -> None:
    if extra:
        with pytest.raises(ValidationError, match="10000 is the most"):
            await queue.enqueue(range(10_001), checkpoint={"at": 1})
        assert (await queue.size(), await queue.checkpoint("at")) == (0, None)
    else:
        assert await queue.enqueue(range(10_000), checkpoint={"at": 1}) == 10_000
        assert await queue.checkpoint("at") == 1


async def test_checkpoints_are_kept_by_name(queue: KVStoreQueue) -> None:
    await queue.enqueue([1], checkpoint={"a": {"page": 1}, "b": None, "é": [1.5]})
    await queue.enqueue([], checkpoint={"a": {"page": 2}})
    found = [await queue.checkpoint(name) for name in ("a", "b", "é", "absent")]
    assert found == [{"page": 2}, None, [1.5], None]


async def test_results_are_numbered_and_trimmed(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(7))
    for lease in await queue.lease(7):
        await lease.complete(result={"n": lease.item})
    assert await queue.results(limit=2) == [(1, {"n": 0}), (2, {"n": 1})]
    assert await queue.results(after=5) == [(6, {"n": 5}), (7, {"n": 6})]
    assert await queue.results(after=7) == []
    await queue.trim_results(5)
    assert [number for number, _ in await queue.results()] == [6, 7]
    await queue.trim_results(3)
    await queue.trim_results(99)
    assert await queue.results() == []
    await queue.enqueue(["later"])
    (lease,) = await queue.lease()
    await lease.complete(result="later")
    assert await queue.results() == [(8, "later")], "numbers are not used again"


@pytest.mark.parametrize("empty", [False, 0, "", [], {}])
async def test_an_empty_result_is_a_result(queue: KVStoreQueue, empty: Any) -> None:
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    await lease.complete(result=empty)
    assert await queue.results() == [(1, empty)]


# --- 4: deduplication is atomic with insertion -------------------------------------------------


async def test_a_key_stays_seen_through_everything_but_clear(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = make_queue()
    entry = Entry("x", key="k")

    async def is_seen() -> bool:
        return await queue.enqueue([entry]) == 0

    assert await queue.enqueue([entry]) == 1
    (lease,) = await queue.lease()
    assert await is_seen()
    await lease.release()
    assert await is_seen()
    (lease,) = await queue.lease()
    await lease.bury("no")
    assert await is_seen()
    assert await queue.requeue() == 1
    assert await is_seen()
    (lease,) = await queue.lease()
    await lease.bury("no")
    assert await queue.purge_dead() == 1
    assert await is_seen()
    await queue.clear()
    assert not await is_seen()
    assert await queue.dequeue() == ["x"]
    assert await is_seen()


async def test_a_refused_request_leaves_its_key_unseen(make_queue: MakeQueue) -> None:
    queue = make_queue(capacity=1, on_full="raise")
    with pytest.raises(Exception, match="capacity"):
        await queue.enqueue([Entry("a", key="a"), Entry("b", key="b")])
    assert await queue.dequeue(9) == ["a"]
    assert await queue.enqueue([Entry("b", key="b")]) == 1


keys_of_a_batch = st.lists(st.sampled_from(["a", "b", "c", "d", None]), max_size=6)


@given(st.lists(keys_of_a_batch, max_size=8))
@quick(60)
def test_as_many_requests_as_keys(batches: list[list[str | None]]) -> None:
    async def check(queue: KVStoreQueue, _: ManualClock) -> None:
        entries = [[Entry(key, key=key) for key in batch] for batch in batches]
        enqueued = await asyncio.gather(*(queue.enqueue(batch) for batch in entries))
        given_ = [key for batch in batches for key in batch]
        expected = len({key for key in given_ if key}) + given_.count(None)
        assert sum(enqueued) == expected == await queue.size()
        ids = defaultdict(set)
        for batch, one in zip(batches, enqueued, strict=True):
            for key, identity in zip(batch, one.ids, strict=True):
                ids[key].add(identity)
        assert all(len(ids[key]) == 1 for key in ids if key)

    in_memory(check)


# --- 5: poison is in test_consumers.py ---------------------------------------------------------
# --- 6: order, turns and gates: see test_order.py -----------------------------------------
# --- 7: the plain meaning of the plain verbs ---------------------------------------------------


async def test_dequeue_removes_and_is_done(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(["x"])
    assert await queue.dequeue() == ["x"]
    await outlive(queue, other, clock)
    assert await other.dequeue() == []
    assert (await accounted(other)).completed == 1


# --- 8: no key is built by pasting: see test_values.py -----------------------------------------
# --- compression -------------------------------------------------------------------------------


async def test_compressed_or_not_each_reads_the_other(make_queue: MakeQueue) -> None:
    plain, small = make_queue(compress_over=0), make_queue(compress_over=10)
    text = "compressible " * 1_000
    await plain.enqueue([text, "tiny"])
    await small.enqueue([text, "tiny"])
    assert await small.dequeue(2) == [text, "tiny"]
    assert await plain.dequeue(2) == [text, "tiny"]


async def test_a_compressed_request_is_smaller_and_survives_every_move(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = make_queue(compress_over=100)
    text = "é" * 10_000
    await queue.enqueue([Entry(text, delay=1.0)])
    clock.advance(1.0)
    (lease,) = await queue.lease()
    assert len(lease.record.body) < 1_000
    await lease.release(error="once")
    (lease,) = await queue.lease()
    await lease.bury("no")
    assert (await letters(queue))[0].item == text
    await queue.requeue()
    assert await queue.dequeue() == [text]


# --- coalescing --------------------------------------------------------------------------------


async def test_calls_made_meanwhile_go_out_together(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    await queue.size()
    before = store.faults.calls[store.verb]
    await asyncio.gather(*(queue.enqueue([n]) for n in range(500)))
    assert store.faults.calls[store.verb] - before <= 4
    leases = await queue.lease(500)
    before = store.faults.calls[store.verb]
    await asyncio.gather(*(lease.complete() for lease in leases))
    assert store.faults.calls[store.verb] - before <= 4


async def test_one_bad_caller_fails_alone(queue: KVStoreQueue) -> None:
    calls = [queue.enqueue([Entry(n, delay=-1 if n == 3 else 0)]) for n in range(6)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(one, ValidationError) for one in outcomes] == [n == 3 for n in range(6)]
    assert await queue.size() == 5


async def test_leases_asked_for_together_are_shared_out_in_turn(queue: KVStoreQueue) -> None:
    assert await queue.lease() == []  # the first lease of all also greets the others
    await queue.enqueue(range(5))
    got = await asyncio.gather(*(queue.lease(2) for _ in range(4)))
    assert [items(leases) for leases in got] == [[0, 1], [2, 3], [4], []]


async def test_the_tasks_of_a_queue_end_with_it(queue: KVStoreQueue, tmp_path: Path) -> None:
    known = set(asyncio.all_tasks())
    await queue.enqueue(range(5))
    await queue.lease()
    async with background(queue.lease(wait=HOUR, lanes=["x"])):
        await eventually(_waits(queue))
        await queue.close()
        await spin()
    await settled(queue)
    await queue.close()
    assert {task for task in asyncio.all_tasks() if not task.done()} == known


def _waits(queue: KVStoreQueue) -> Callable[[], Any]:
    async def look() -> bool:
        return queue._session is not None and queue._session.rooms.anybody

    return look
