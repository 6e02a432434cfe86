"""Cancelling, burying, requeueing, purging and forgetting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from data_fetcher_core import Entry, Priority
from data_fetcher_core.core import DeathReason, QueueStats
from data_fetcher_core.errors import (
    LeaseLost,
    StoreError,
    StoreLost,
)
from data_fetcher_core.events import Event, HeartbeatMissed
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.kv_store.transactional import TransactionalStore
from data_fetcher_core.queue import KVStoreQueue, clearing, tending
from data_fetcher_core.queue.engine import Move, Settlement
from data_fetcher_core.queue.lane_state import LaneState, QueueState
from data_fetcher_core.queue.leasing import lease_value
from data_fetcher_core.queue.ordered_keys import OrderedKeys
from data_fetcher_core.queue.step import Step
from data_fetcher_core.queue.transactional_engine import TransactionalEngine
from data_fetcher_core.testing import Fault, ManualClock, make_faulty
from tests.conftest import MakeQueue, OpenStore
from tests.harness import (
    accounted,
    as_time_passes,
    background,
    client_of,
    drain,
    erase,
    everything,
    items,
    letters,
    outlive,
    overwrite,
    places,
    spin,
)
from tests.servers import RedisServer

HOUR = 3600.0


# --- cancelling --------------------------------------------------------------------------------


async def test_cancel_wherever_it_is(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, other = make_queue(), make_queue()
    entries = [Entry(n, id=n) for n in ("held", "completed", "ready")]
    await queue.enqueue(entries)
    await queue.enqueue([Entry("delayed", id="delayed")], delay=5.0)
    held, completed = await queue.lease(2)
    ids = ["held", "completed", "ready", "delayed", "unknown"]
    assert await other.cancel(ids) == 4
    assert await places(queue) == {"leased": 2}
    await completed.complete(enqueue=["child"])
    await held.release()
    clock.advance(10.0)
    assert await queue.dequeue(9) == ["child"], "complete wins, the others are gone"
    stats = await accounted(queue)
    assert (stats.cancelled, stats.completed) == (3, 2)


@pytest.mark.parametrize("move", ["release", "give_back", "bury", "close", "crash"])
async def test_a_cancelled_lease_goes_at_its_next_move(
    make_queue: MakeQueue, clock: ManualClock, move: str
) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue([Entry("x", id="x")])
    (lease,) = await queue.lease()
    assert await other.cancel(["x"]) == 1
    if move == "close":
        await queue.close()
    elif move == "crash":
        await outlive(queue, other, clock)
    else:
        await getattr(lease, move)()
    assert await places(other) == {}
    assert (await accounted(other)).cancelled == 1
    await other.enqueue([Entry("again", id="x")])
    assert await other.dequeue() == ["again"], "the mark went with it"


@pytest.mark.parametrize("move", ["release", "complete"])
async def test_what_takes_the_name_of_a_cancelled_one_is_not_taken_for_it(
    queue: KVStoreQueue, move: str
) -> None:
    await queue.enqueue([Entry(name, id=name) for name in ("x", "y")])
    x, y = await queue.lease(2)
    assert await queue.cancel(["x"]) == 1
    await getattr(x, move)()
    await queue.enqueue([Entry("again", id="x")])
    (again,) = await queue.lease()
    assert await queue.cancel(["y"]) == 1, "from now on marks are looked for"
    await again.release()
    assert await places(queue) == {"ready": 1, "leased": 1}
    await y.release()
    assert await queue.dequeue(9) == ["again"]
    await accounted(queue)


@pytest.mark.parametrize("store_kind", ["memory", "sqlite"], indirect=True)
async def test_what_is_marked_already_is_not_handed_out(queue: KVStoreQueue) -> None:
    """Cancelling walks what waits in slices; who leases meanwhile gets none of it."""
    await queue.enqueue([Entry(name, id=name) for name in ("x", "y")])
    client = await client_of(queue)

    def mark(step: Step) -> int:
        return tending.mark(step, [b"x", b"x"])

    await client.ask("cancel", lambda op: client.engine._count(op, "cancel", mark))
    assert items(await queue.lease(9)) == ["y"]
    stats = await accounted(queue)
    assert (stats.leased, stats.cancelled) == (1, 1)


@pytest.mark.parametrize("store_kind", ["memory", "sqlite"], indirect=True)
async def test_a_head_that_is_none_replaces_nothing(queue: KVStoreQueue) -> None:
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    client = await client_of(queue)
    spoilt = [Settlement(lease.token, Move.RELEASE, head=b"no head")]
    await client.ask("settle", lambda op: client.engine.settle(op, spoilt))
    (letter,) = await letters(queue)
    assert letter.reason is DeathReason.CORRUPT
    assert letter.raw.endswith(b'"x"')
    await accounted(queue)


async def test_those_dropped_are_all_counted(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(3))
    for lease in await queue.lease(3):
        await lease.drop()
    assert (await accounted(queue)).cancelled == 3


async def test_a_mark_that_matches_nothing_does_not_stay(queue: KVStoreQueue) -> None:
    assert await queue.cancel(["future"]) == 0
    await queue.enqueue([Entry("x", id="future")])
    assert await queue.dequeue() == ["x"]


async def test_forget_lets_a_cancelled_key_come_again(queue: KVStoreQueue) -> None:
    entries = [Entry(key, key=key) for key in ("kept", "forgotten", "held")]
    ids = (await queue.enqueue(entries)).ids
    held = [lease for lease in await queue.lease(3) if lease.item != "held"]
    for lease in held:
        await lease.give_back()
    assert await queue.cancel(ids[:1]) == 1
    assert await queue.cancel(ids[1:], forget=True) == 2
    again = await queue.enqueue(entries)
    assert again == 2
    assert await queue.peek(9) == ["forgotten", "held"]


async def test_without_forget_the_key_of_a_cancelled_one_stays_seen(queue: KVStoreQueue) -> None:
    entries = [Entry(key, key=key) for key in ("held", "ready", "delayed")]
    ids = (await queue.enqueue(entries[:2])).ids
    await queue.lease()
    later = (await queue.enqueue(entries[2:], delay=5.0)).ids
    assert await queue.cancel([*ids, *later]) == 3
    assert await queue.enqueue(entries) == 0


async def test_cancel_among_many_in_many_lanes(make_queue: MakeQueue) -> None:
    queue, other = make_queue(), make_queue()
    entries = [Entry(n, id=f"id{n}", lane=str(n % 37), priority=1 + n % 6) for n in range(3_000)]
    await queue.enqueue(entries)
    await queue.enqueue([Entry(n, id=f"late{n}", delay=9.0) for n in range(1_500)])
    wanted = [f"id{n}" for n in range(0, 3_000, 7)] + [f"late{n}" for n in range(0, 1_500, 2)]
    assert await other.cancel(wanted) == len(wanted)
    stats = await accounted(queue)
    assert (stats.cancelled, stats.size) == (len(wanted), 4_500 - len(wanted))
    left = set(await drain(queue))
    assert left == {n for n in range(3_000) if n % 7}


async def test_a_cancellation_whose_answer_is_lost_tells_as_many(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    for call in range(1, 5):
        await queue.enqueue([Entry("x", id=f"id{call}")])
        store.faults.plan(Fault.AFTER, store.verb, call)
        assert await queue.cancel([f"id{call}"]) == 1
    store.faults.heal()
    assert (await accounted(queue)).cancelled == 4


@pytest.mark.parametrize("store_kind", ["memory", "sqlite"], indirect=True)
async def test_a_cancellation_goes_once_over_what_waits(
    make_queue: MakeQueue, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much that is: so many steps as hold it, and three besides."""
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    await queue.enqueue(range(12), delay=5.0)
    monkeypatch.setattr(tending, "STEP", 4)
    before = store.faults.calls[store.verb]
    assert await queue.cancel(["none"]) == 0
    assert store.faults.calls[store.verb] - before <= 1 + 12 // 4 + 3


async def test_a_clear_that_is_cut_short_leaves_true_counts(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(3), delay=5.0)
    client = await client_of(queue)
    await client.ask("clear", client.engine.clear)
    assert (await accounted(queue)).cleared == 3


# --- dead letters ------------------------------------------------------------------------------


async def test_dead_letters_are_told_whole(queue: KVStoreQueue, clock: ManualClock) -> None:
    await queue.enqueue([Entry({"n": 1}, id="a", lane="l", key="k", priority="high")])
    (lease,) = await queue.lease()
    await lease.release(error=ValueError("first"))
    (lease,) = await queue.lease()
    await lease.bury("gone for good", error=KeyError("second"))
    (letter,) = await letters(queue)
    assert (letter.id, letter.item, letter.lane, letter.key) == ("a", {"n": 1}, "l", "k")
    assert (letter.reason, letter.detail) == (DeathReason.FAILED, "gone for good")
    assert (letter.priority, letter.attempts, letter.deaths) == (Priority.HIGH, 2, 0)
    assert [failure.kind for failure in letter.failures] == ["ValueError", "KeyError"]
    assert letter.buried_at == clock.store_now()
    clock.advance(5.0)
    assert letter.age(clock.store_now()) == 5.0


async def test_dead_letters_come_in_pages_oldest_first(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    await queue.enqueue(range(25))
    for number, lease in enumerate(await queue.lease(25)):
        await lease.bury(str(number))
        clock.advance(number % 2)
    for size in (1, 7, 1_000):
        found = [letter.item async for letter in queue.dead_letters(page_size=size)]
        assert found == list(range(25))


async def test_requeue_some_or_all(queue: KVStoreQueue) -> None:
    await queue.enqueue([Entry(n, id=f"id{n}") for n in range(5)])
    for lease in await queue.lease(5):
        await lease.bury("no")
    assert await queue.requeue(["id1", "id3", "unknown"]) == 2
    assert await queue.requeue(["id1"]) == 0
    assert await queue.requeue([]) == 0
    assert await queue.dequeue(9) == [1, 3]
    assert await queue.requeue() == 3
    again = await queue.lease(9)
    assert {(lease.attempts, lease.deaths, len(lease.failures)) for lease in again} == {(0, 0, 1)}
    assert (await accounted(queue)).requeued == 5


async def test_requeue_does_not_chase_what_fails_again(make_queue: MakeQueue) -> None:
    """What it has requeued may be buried again before it has come to the end of the list."""
    queue, worker = make_queue(), make_queue()
    await queue.enqueue([Entry(n, id=f"id{n}") for n in range(2)])
    await _bury_all(worker)
    engine: Any = queue._engine
    requeue = engine.requeue

    async def requeue_and_lose_again(*args: Any) -> int:
        count: int = await requeue(*args)
        await _bury_all(worker)
        return count

    engine.requeue = requeue_and_lose_again
    async with asyncio.timeout(5.0):
        assert await queue.requeue() == 2
        assert await queue.requeue(["id0"]) == 1
    assert (await accounted(queue)).dead == 2


async def _bury_all(queue: KVStoreQueue) -> None:
    for lease in await queue.lease(9):
        await lease.bury("no")


async def test_what_somebody_else_has_requeued_is_not_requeued_again(queue: KVStoreQueue) -> None:
    await queue.enqueue(["x"])
    await _bury_all(queue)
    (letter,) = await letters(queue)
    client = await client_of(queue)
    (found,) = await client.engine.dead(None, 9)
    assert await queue.requeue([letter.id]) == 1
    again = await client.ask("requeue", lambda op: client.engine.requeue(op, [found.position]))
    assert again == 0
    assert await places(queue) == {"ready": 1}


async def test_who_asks_to_purge_is_not_told_what_the_heart_has_purged(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(dead_retention=HOUR)
    await queue.sweep()
    await queue.enqueue(["x"])
    await _bury_all(queue)
    assert await queue.purge_dead() == 1


async def test_purge_by_age(queue: KVStoreQueue, clock: ManualClock) -> None:
    await queue.enqueue(range(3))
    for lease in await queue.lease(3):
        await lease.bury("no")
        clock.advance(10.0)
    assert await queue.purge_dead(older_than=20.0) == 2
    assert [letter.item for letter in await letters(queue)] == [2]
    assert await queue.purge_dead() == 1
    assert (await accounted(queue)).purged == 3


async def test_purge_goes_on_beyond_one_step(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(2_200))
    for _ in range(3):
        await asyncio.gather(*(lease.bury("no") for lease in await queue.lease(1_000)))
    assert await queue.purge_dead() == 2_200


async def test_dead_letters_are_dropped_after_their_retention(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = make_queue(dead_retention=60.0)
    await queue.enqueue(["old", "new"])
    old, new = await queue.lease(2)
    await old.bury("no")
    clock.advance(30.0)
    await new.bury("no")
    clock.advance(30.0)
    await queue.sweep()
    assert [letter.item for letter in await letters(queue)] == ["new"]
    clock.advance(30.0)
    await queue.sweep()
    assert await letters(queue) == []


# --- looking and counting ----------------------------------------------------------------------


async def test_a_shut_lane_is_shown_at_its_turn(queue: KVStoreQueue) -> None:
    """As if every lane were open."""
    await queue.enqueue(["first"], lane="shut")
    await queue.shut("shut", HOUR)
    await queue.enqueue(["second"], lane="open")
    assert await queue.peek(9) == ["first", "second"]


async def test_counting_again_mends_all_and_is_not_stopped_by_a_lane_that_is_no_text(
    clock: ManualClock,
) -> None:
    store, keys = MemoryStore(), OrderedKeys(b"run")
    engine = TransactionalEngine(store, b"run", clock)
    await engine.open({}, ())
    await overwrite(store, keys.state, QueueState(ready=1, delayed=2, leased=3, dead=4).encode())
    await overwrite(store, keys.lane(b"l"), LaneState(b"l", in_flight=9).encode())
    await overwrite(store, keys.lease(b"me", b"token"), lease_value(b"\xff", b"damaged"))
    assert await engine.recount() == {
        "ready": (1, 0),
        "delayed": (2, 0),
        "leased": (3, 1),
        "dead": (4, 0),
        "in_flight:l": (9, 0),
        "in_flight:\ufffd": (0, 1),
    }
    assert await engine.recount() == {}


# --- a store that comes back empty, and a run that is forgotten --------------------------------


async def wipe(store: KeyValueStore, redis_server: RedisServer) -> None:
    if isinstance(store, TransactionalStore):
        await erase(store)
    else:
        redis_server.flush()


async def test_an_empty_store_is_lost_never_drained(
    make_queue: MakeQueue, open_store: OpenStore, redis_server: RedisServer
) -> None:
    store = open_store()
    queue = make_queue(store=store)
    await queue.enqueue(range(5))
    (lease,) = await queue.lease()
    stream = queue.leases(until="drained")
    await anext(stream)
    await wipe(store, redis_server)
    verbs: list[Callable[[], Any]] = [
        lambda: anext(stream),
        queue.lease,
        lambda: queue.lease(wait=HOUR),
        lambda: queue.enqueue(["x"]),
        queue.dequeue,
        queue.size,
        queue.stats,
        queue.peek,
        lease.complete,
        queue.sweep,
        queue.requeue,
        lambda: queue.checkpoint("at"),
    ]
    for verb in verbs:
        with pytest.raises(StoreLost):
            await asyncio.wait_for(verb(), 5.0)


# Who waits on Redis looks again after ten seconds that no clock of ours can shorten.
@pytest.mark.parametrize(
    "store_kind",
    ["memory", "sqlite", pytest.param("redis", marks=pytest.mark.slow)],
    indirect=True,
)
async def test_who_waits_is_told_that_the_store_is_lost(
    make_queue: MakeQueue, open_store: OpenStore, redis_server: RedisServer, clock: ManualClock
) -> None:
    store, told = open_store(), list[Event]()
    queue = make_queue(store=store, subscriber=told.append)
    await queue.enqueue(["held"])
    held = await queue.lease()
    async with background(_outcome(queue.lease(wait=float("inf")))) as waiting:
        await spin(100)
        await wipe(store, redis_server)

        async def told_of_it() -> bool:
            return waiting.done() and any(isinstance(event, HeartbeatMissed) for event in told)

        await as_time_passes(clock, told_of_it, step=1.0, within=30.0)
        assert waiting.result() == "StoreLost"
    assert len(held) == 1


async def _outcome(work: Coroutine[Any, Any, Any]) -> str:
    try:
        return f"{await work}"
    except Exception as error:  # noqa: BLE001 - its name is looked at
        return type(error).__name__


async def test_a_store_that_was_lost_may_begin_anew_if_somebody_says_so(
    make_queue: MakeQueue, open_store: OpenStore, redis_server: RedisServer
) -> None:
    store = open_store()
    queue = make_queue(store=store)
    await queue.enqueue(["x"])
    await wipe(store, redis_server)
    fresh = make_queue()
    await fresh.enqueue(["new"])
    assert await fresh.dequeue(9) == ["new"]


async def test_forget_drops_everything_and_the_run_may_begin_anew(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = make_queue(max_attempts=9)
    await queue.enqueue([Entry(n, key=str(n)) for n in range(5)], checkpoint={"at": 1})
    await queue.enqueue(["later"], delay=5.0)
    await queue.shut("a", HOUR)
    first, second = await queue.lease(2)
    await first.complete(result="done")
    await second.bury("no")
    await queue.forget()
    fresh = make_queue(max_attempts=3)
    assert await fresh.stats() == QueueStats()
    assert await fresh.checkpoint("at") is None
    assert await fresh.results() == []
    assert await fresh.enqueue([Entry(1, key="1")], lane="a") == 1
    assert await fresh.dequeue() == [1]


async def test_who_settles_after_a_forget_has_lost_the_lease(make_queue: MakeQueue) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(range(4))
    leases, theirs = await queue.lease(2), await other.lease(2)
    await other.forget()
    for lease in (*leases, *theirs):
        with pytest.raises(LeaseLost):
            await lease.complete(enqueue=["ghost"])
    fresh = make_queue()
    await fresh.enqueue(["anew"])
    assert await fresh.dequeue(9) == ["anew"]
    assert (await accounted(fresh)).completed == 1


async def test_a_live_queue_goes_on_in_the_run_that_followed(make_queue: MakeQueue) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(["old"])
    await other.forget()
    await other.enqueue(["new"])
    assert await queue.dequeue(9) == ["new"]
    await queue.enqueue(["newer"])
    assert await other.dequeue(9) == ["newer"]


async def test_a_forget_that_died_half_way_is_finished_by_the_next(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store = make_faulty(open_store())
    queue = make_queue(store=store, op_timeout=0.2)
    await make_queue().enqueue(range(3_500))
    await queue.size()
    for call in range(2, 500):
        store.faults.plan(Fault.BEFORE, store.verb, call)
    with pytest.raises(StoreError):
        await queue.forget()
    fresh = make_queue()
    await fresh.forget()
    assert await fresh.stats() == QueueStats()
    await fresh.enqueue(["anew"])
    assert await fresh.dequeue(9) == ["anew"]


async def test_forgetting_one_run_leaves_the_others(make_queue: MakeQueue) -> None:
    queue, other = make_queue("fetch:a"), make_queue("fetch:ab")
    for one in (queue, other):
        await one.enqueue([Entry(1, key="k"), 2], checkpoint={"at": 1})
    await queue.forget()
    assert await other.size() == 2
    assert await other.checkpoint("at") == 1
    assert (await other.enqueue([Entry(1, key="k")])) == 0


@pytest.mark.parametrize("store_kind", ["memory", "sqlite"], indirect=True)
async def test_nothing_is_left_of_a_run_that_is_over(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    """No debris: counters, one line per seen key, and nothing per request that is gone."""
    store = open_store()
    assert isinstance(store, TransactionalStore)
    queue = make_queue(store=store)
    for round_ in range(3):
        await queue.enqueue([Entry(n, lane=f"{round_}/{n}") for n in range(50)])
        for lease in await queue.lease(50):
            await lease.complete()
        await queue.close()
    assert len(await everything(store)) <= 3
    await queue.forget()
    await queue.close()
    assert len(await everything(store)) <= 1


async def test_what_was_ever_buried_is_counted(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = make_queue()
    await queue.enqueue(["a", "b", Entry("late", expires_in=1.0)])
    for lease in await queue.lease(2):
        await lease.bury("no")
    clock.advance(2.0)
    assert await queue.lease() == []
    details = [letter.detail for letter in await letters(queue)]
    assert details == ["no", "no", "it waited longer than it was to wait"]
    assert await queue.requeue() == 3
    stats = await accounted(queue)
    assert (stats.buried, stats.dead, stats.ready) == (3, 0, 3)


@pytest.mark.parametrize("store_kind", ["memory", "sqlite"], indirect=True)
async def test_clearing_ends_while_others_add_as_fast_as_it_drops(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes after it has begun is left alone."""
    monkeypatch.setattr(clearing, "STEP", 4)
    monkeypatch.setattr(clearing, "MOST_READ", 2)
    queue, other = make_queue(), make_queue()
    await queue.enqueue([Entry(n, lane=str(n % 3), key=str(n)) for n in range(30)])
    await queue.enqueue(range(30, 42), delay=5.0)
    client, steps = await client_of(queue), 0
    ask = client.ask

    async def ask_while_others_add(verb: str, act: Any) -> Any:
        nonlocal steps
        steps += 1
        assert steps < 100
        answer = await ask(verb, act)
        lanes = [Entry(f"new {steps}.{n}", lane=str(n % 4)) for n in range(8)]
        await other.enqueue([*lanes, *(Entry(n, delay=9.0) for n in range(8))])
        return answer

    monkeypatch.setattr(client, "ask", ask_while_others_add)
    cleared = await queue.clear()
    assert cleared == 42
    assert steps >= 10
    stats = await accounted(queue)
    assert (stats.cleared, stats.size) == (cleared, 42 + 16 * steps - cleared)
    assert stats.delayed == 8 * steps
    seen = OrderedKeys(b"fetch:test").seen_keys
    assert isinstance(queue._store, TransactionalStore)
    assert not any(key.startswith(seen) for key in await everything(queue._store))
    assert await other.enqueue([Entry("again", key="0")]) == 1


@pytest.mark.parametrize("store_kind", ["memory", "sqlite"], indirect=True)
async def test_what_is_cleared_and_not_swept_yet_is_neither_cancelled_nor_shown(
    queue: KVStoreQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clearing, "STEP", 4)
    monkeypatch.setattr(clearing, "MOST_READ", 4)
    ids = (await queue.enqueue([Entry(n, key=str(n)) for n in range(20)])).ids
    client = await client_of(queue)
    await client.ask("clear", client.engine.clear)
    await queue.enqueue([Entry("again", key="19"), "new", "newer"])
    assert await queue.peek(3) == ["again", "new", "newer"]
    assert await queue.cancel(ids[:19], forget=True) == 0
    assert await queue.cancel(ids[19:], forget=True) == 1
    assert await queue.enqueue([Entry("once more", key="19")]) == 1
    assert items(await queue.lease(9)) == ["new", "newer", "once more"]
    stats = await accounted(queue)
    assert (stats.cleared, stats.cancelled) == (20, 1)


@pytest.mark.parametrize("store_kind", ["memory"], indirect=True)
async def test_a_step_of_clearing_passes_over_so_many_and_no_more(
    queue: KVStoreQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clearing, "STEP", 4)
    monkeypatch.setattr(clearing, "MOST_READ", 4)
    monkeypatch.setattr(clearing, "_MOST_PASSED", 8)
    await queue.enqueue(range(8), delay=5.0)
    client, steps = await client_of(queue), 1
    cleared = await client.ask("clear", client.engine.clear)
    await queue.enqueue(range(8, 48), delay=9.0)
    while (place := cleared.place) is not None:
        cleared = await client.ask("clear", partial(client.engine.clear, place=place))
        steps += 1
    assert (await accounted(queue)).delayed == 40
    assert steps >= 2 + 40 // 8


async def test_a_clearing_that_has_begun_is_done(
    make_queue: MakeQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever dies in the midst of it: no old request comes again, no new key comes twice."""
    monkeypatch.setattr(clearing, "STEP", 4)
    monkeypatch.setattr(clearing, "MOST_READ", 4)
    dying, queue = make_queue(), make_queue()
    await queue.enqueue([Entry(n, lane=str(n % 3), key=str(n)) for n in range(12)])
    held, back = await queue.lease(2)
    await queue.enqueue([Entry(n, delay=5.0, key=str(n)) for n in range(12, 24)])
    await back.give_back()
    client = await client_of(dying)
    cleared = await client.ask("clear", client.engine.clear)
    entries = [Entry(f"again {n}", key=str(n), delay=5.0 * (n % 2)) for n in (3, 4, 13, 14)]
    assert [await queue.enqueue(entries) for _ in range(2)] == [4, 0]
    assert sorted(await queue.peek(99)) == ["again 14", "again 4"]
    clock.advance(6.0)
    leases = await queue.lease(99)
    assert sorted(items(leases)) == ["again 13", "again 14", "again 3", "again 4"]
    for lease in (held, *leases):
        await lease.complete()
    while (place := cleared.place) is not None:
        cleared = await client.ask("clear", partial(client.engine.clear, place=place))
    assert await queue.enqueue(entries) == 0
    assert (await accounted(queue)).cleared == 23
    assert await queue.clear() == 0
    assert await queue.enqueue(entries) == 4


@pytest.mark.parametrize("store_kind", ["memory", "sqlite"], indirect=True)
async def test_counting_again_reads_no_more_than_a_page_at_once(
    make_queue: MakeQueue, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait: a store of millions is counted, too, and nobody else is kept waiting."""
    store = open_store()
    queue = make_queue(store=store)
    await queue.enqueue(range(2_500))
    pages: list[int] = []
    transact = store.transact  # type: ignore[attr-defined]

    async def watched(fn: Any, *, urgent: bool = False) -> Any:
        def run(tx: Any) -> Any:
            inner = tx.range
            with monkeypatch.context() as patch:
                patch.setattr(type(tx), "range", lambda _, *args: noted(inner(*args)))
                return fn(tx)

        return await transact(run, urgent=urgent)

    def noted(found: list[Any]) -> list[Any]:
        pages.append(len(found))
        return found

    monkeypatch.setattr(store, "transact", watched)
    assert await queue.recount() == {}
    assert max(pages, default=0) <= 1_000
