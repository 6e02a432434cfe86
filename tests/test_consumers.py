"""Who holds what: heartbeats, the death of a consumer, and leases that nobody holds."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core import Entry
from data_fetcher_core.core import DeathReason
from data_fetcher_core.errors import ConfigurationError, LeaseLost, StoreUnavailable
from data_fetcher_core.events import (
    Buried,
    ConsumerReaped,
    Event,
    HeartbeatMissed,
    LeasesLost,
    LeasesReturned,
    Retried,
    StepsForgotten,
    log_event,
)
from data_fetcher_core.queue import KVStoreQueue, consumers, settling
from data_fetcher_core.queue.consumers import (
    Watchlist,
    Whereabouts,
    here,
    is_surely_dead,
    make_name,
    place_of,
    process_status,
)
from data_fetcher_core.queue.engine import STEP, Addition, Beat, Op, Slice
from data_fetcher_core.testing import Fault, ManualClock, make_faulty
from tests.children import child, go_on, said
from tests.conftest import MakeQueue, OpenStore
from tests.harness import (
    accounted,
    as_time_passes,
    background,
    beat_twice,
    client_of,
    crash,
    drain,
    eventually,
    impatient,
    items,
    letters,
    outlive,
    places,
    settled,
    silence,
    spin,
)
from tests.scripted import new

HOUR = 3600.0
between_processes = pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)
in_memory = pytest.mark.parametrize("store_kind", ["memory"], indirect=True)


# --- the living --------------------------------------------------------------------------------


async def test_the_heart_keeps_a_lease_for_as_long_as_it_is_held(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    for _ in range(100):
        clock.advance(0.5)
        before = (await client_of(queue)).heard_at
        await eventually(_beat_or_early(queue, before))
        await other.sweep()
    assert await other.lease() == []
    await lease.complete()
    assert (await accounted(other)).completed == 1


def _beat_or_early(queue: KVStoreQueue, before: float) -> Callable[[], Any]:
    """Give a heart that is due the real time it needs; one that never beats gets a moment."""
    tries = itertools.count()

    async def heard() -> bool:
        return (await client_of(queue)).heard_at > before or next(tries) > 3

    return heard


async def test_a_waiting_consumer_is_not_taken_for_dead(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    told: list[Event] = []
    queue, other = make_queue(), make_queue(subscriber=told.append)
    waiting = asyncio.ensure_future(queue.lease(wait=HOUR))
    for _ in range(100):
        clock.advance(1.0)
        await asyncio.sleep(0.002)
        await other.sweep()
    await other.enqueue(["x"])
    (lease,) = await waiting
    await lease.complete()
    assert told == []


async def test_nobody_else_gets_what_a_living_consumer_holds(make_queue: MakeQueue) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(range(4))
    mine, theirs = await queue.lease(2), await other.lease(9)
    assert (items(mine), items(theirs)) == ([0, 1], [2, 3])
    assert await queue.lease(9) == []


async def noted_beats(queue: KVStoreQueue, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Whose heart beats from now on, once for each beat."""
    engine, beats = (await client_of(queue)).engine, list[bytes]()
    beat = engine.beat

    async def noted(name: bytes) -> Beat:
        beats.append(name)
        answer: Beat = await beat(name)
        return answer

    monkeypatch.setattr(engine, "beat", noted)
    return beats


async def pass_intervals(clock: ManualClock, number: int) -> None:
    """Of the heart of a queue with the usual ``lease_ttl``."""
    for _ in range(number):
        clock.advance(3.0)
        await spin()


@in_memory
async def test_one_heart_beats_however_often_somebody_leases(
    queue: KVStoreQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        assert await queue.lease() == []
    beats = await noted_beats(queue, monkeypatch)
    await pass_intervals(clock, 1)
    assert len(beats) == 1


@in_memory
async def test_a_heart_rests_while_nothing_is_held_and_begins_anew(
    queue: KVStoreQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await queue.lease() == []
    beats = await noted_beats(queue, monkeypatch)
    await pass_intervals(clock, 3)
    assert len(beats) == 1, "the one that heard that nothing is held was the last"
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    await pass_intervals(clock, 3)
    assert len(beats) == 1 + 3
    await lease.complete()
    await pass_intervals(clock, 3)
    assert len(beats) == 1 + 3 + 1


@in_memory
async def test_the_heart_of_who_waits_beats_though_nothing_is_held(
    queue: KVStoreQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with background(queue.lease(wait=HOUR)):
        await spin()
        beats = await noted_beats(queue, monkeypatch)
        await pass_intervals(clock, 3)
        assert len(beats) == 3


@in_memory
async def test_who_holds_leases_hears_of_a_silence_while_it_still_has_them(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store, lease_ttl = make_faulty(open_store()), 0.2
    queue = make_queue(store=store, lease_ttl=lease_ttl, op_timeout=HOUR)
    await client_of(queue)
    for call in range(1, 20):
        store.faults.plan(Fault.HANG, store.verb, call)
    with pytest.raises(StoreUnavailable) as silence_told:
        await queue.sweep()
    store.faults.heal()
    (bound,) = re.findall(r"did not answer within (\S+) s", str(silence_told.value))
    assert float(bound) < lease_ttl


async def test_a_heart_beats_on_after_the_store_was_away(
    make_queue: MakeQueue, open_store: OpenStore, clock: ManualClock
) -> None:
    told: list[Event] = []
    store = make_faulty(open_store())
    queue = make_queue(store=store, subscriber=told.append)
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    await impatient(queue)
    for call in range(1, 40):
        store.faults.plan(Fault.BEFORE, store.verb, call)

    async def missed() -> bool:
        return any(isinstance(event, HeartbeatMissed) for event in told)

    await as_time_passes(clock, missed)
    (first, *_) = [event for event in told if isinstance(event, HeartbeatMissed)]
    assert "the request was lost" in first.error
    store.faults.heal()
    heard_at = (await client_of(queue)).heard_at

    async def heard() -> bool:
        return bool((await client_of(queue)).heard_at > heard_at)

    await as_time_passes(clock, heard)
    await lease.complete()


async def test_a_heart_beats_on_after_it_was_refused(
    make_queue: MakeQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password that is wrong for a moment, a replica that is set up otherwise."""
    told: list[Event] = []
    queue = make_queue(subscriber=told.append)
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    client = await client_of(queue)

    async def refuse(_: bytes) -> Beat:
        raise ConfigurationError("WRONGPASS")

    async def missed() -> bool:
        return any(isinstance(event, HeartbeatMissed) for event in told)

    with monkeypatch.context() as patched:
        patched.setattr(client.engine, "beat", refuse)
        await as_time_passes(clock, missed)
    heard_at = client.heard_at

    async def heard() -> bool:
        return bool(client.heard_at > heard_at)

    await as_time_passes(clock, heard)
    await lease.complete()


async def test_a_subscriber_that_raises_does_not_stop_the_heart(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    def raises(_: Event) -> None:
        raise RuntimeError("a broken metrics exporter")

    dead, queue = make_queue(), make_queue(subscriber=raises)
    await dead.enqueue(["x", "y"])
    await dead.lease()
    (lease,) = await queue.lease()
    await crash(dead)

    async def reaped() -> bool:
        return (await queue.stats()).ready == 1

    await as_time_passes(clock, reaped)
    heard_at = (await client_of(queue)).heard_at

    async def heard_again() -> bool:
        return bool((await client_of(queue)).heard_at > heard_at)

    await as_time_passes(clock, heard_again)
    await lease.complete()


async def test_a_subscriber_that_raises_does_not_spoil_a_settlement(
    make_queue: MakeQueue,
) -> None:
    def raises(_: Event) -> None:
        raise RuntimeError("a broken metrics exporter")

    queue = make_queue(subscriber=raises)
    await queue.enqueue(["x", "y"])
    released, buried = await queue.lease(2)
    await released.release()
    await buried.bury("no")
    assert await places(queue) == {"ready": 1, "dead": 1}


# --- the dead, by their silence ----------------------------------------------------------------


async def test_silent_for_exactly_the_lease_ttl(make_queue: MakeQueue, clock: ManualClock) -> None:
    dead, survivor = make_queue(lease_ttl=10.0), make_queue(lease_ttl=10.0)
    await dead.enqueue(["x"])
    await dead.lease()
    await crash(dead)
    await silence(survivor, clock, 9.999999)
    assert await survivor.lease() == []
    clock.advance(0.000001)
    await survivor.sweep()
    (lease,) = await survivor.lease()
    assert (lease.item, lease.deaths, lease.attempts) == ("x", 1, 0)


async def test_the_silence_begins_when_the_sweeper_first_sees_it(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    dead, survivor = make_queue(), make_queue()
    await dead.enqueue(["x"])
    await dead.lease()
    await crash(dead)
    clock.advance(HOUR)
    await survivor.sweep()
    assert await survivor.lease() == []
    clock.advance(30.0)
    await survivor.sweep()
    assert items(await survivor.lease()) == ["x"]


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_a_step_of_the_stores_clock_reaps_nobody(
    make_queue: MakeQueue, clock: ManualClock, step: float
) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    await other.sweep()
    for _ in range(5):
        clock.jump(step)
        await other.sweep()
        assert await other.lease() == []
    await lease.complete()


@pytest.mark.parametrize("gives_up", [False, True], ids=["asks on", "gives up"])
async def test_a_store_that_was_away_reaps_nobody(
    make_queue: MakeQueue, open_store: OpenStore, clock: ManualClock, gives_up: bool
) -> None:
    """While it was away nobody's heart could be heard: that is no silence."""
    stores = [make_faulty(open_store()) for _ in range(2)]
    queue, other = (make_queue(store=store) for store in stores)
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    await other.sweep()
    await impatient(other, 0.1 if gives_up else 30.0)
    for store, call in itertools.product(stores, range(1, 100)):
        store.faults.plan(Fault.BEFORE, store.verb, call)
    async with background(is_away(other.sweep())) as sweeping:
        await spin()
        clock.advance(31.0)
        await spin()
        if gives_up:
            assert await sweeping
        stores[1].faults.heal()
        await sweeping
    await other.sweep()
    assert await other.lease() == []
    stores[0].faults.heal()
    await lease.complete()
    assert (await accounted(other)).completed == 1


async def is_away(asking: Awaitable[Any]) -> bool:
    try:
        await asking
    except StoreUnavailable:
        return True
    return False


async def test_a_beat_at_the_last_moment_saves(make_queue: MakeQueue) -> None:
    """The step that reaps looks whether the number it was told is still the same."""
    queue, other = make_queue(), make_queue()
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    client, engine = await client_of(queue), (await client_of(other)).engine
    stale = (await engine.beat((await client_of(other)).name)).consumers[client.name]
    await queue.sweep()
    assert await engine.reap(client.name, stale) == (0, False)
    await lease.complete()


async def test_who_was_reaped_and_returns_is_not_reaped_by_an_old_judgement(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """Its first number after that is one it has never had."""
    queue, other = make_queue(), make_queue()
    name, engine = (await client_of(queue)).name, (await client_of(other)).engine
    judged = [(await engine.beat(name)).consumers[name] for _ in range(5)]
    clock.advance(31.0)
    assert await engine.reap(name, judged[-1]) == (0, False)
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    for _ in judged:
        for number in judged:
            assert await engine.reap(name, number) == (0, False)
        await engine.beat(name)
    await lease.complete()


async def test_who_enqueues_is_not_forgotten_while_it_may_ask_again(make_queue: MakeQueue) -> None:
    """What a consumer asked is forgotten with it; a repetition would then be taken for new."""
    queue, other = make_queue(), make_queue()
    client, engine = await client_of(queue), (await client_of(other)).engine
    judged = (await engine.beat(client.name)).consumers[client.name]
    op, addition = Op(client.name, 1), Addition([new("a")])
    await engine.add(op, [addition])
    assert await engine.reap(client.name, judged) == (0, False)
    await engine.add(op, [addition])
    assert (await queue.stats()).ready == 1


async def test_nothing_is_added_again_after_it_may_have_been_forgotten(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    """A store that does not answer: longer than a lease lasts, nobody asks it to add the same."""
    store = make_faulty(open_store())
    queue = make_queue(store=store, lease_ttl=0.5, op_timeout=60.0)
    await client_of(queue)
    for call in range(1, 1_000):
        store.faults.plan(Fault.BEFORE, store.verb, call)
    async with asyncio.timeout(20.0):
        assert await is_away(queue.enqueue(["x"]))
    store.faults.heal()


async def test_a_producer_that_died_is_forgotten(make_queue: MakeQueue, clock: ManualClock) -> None:
    producer, consumer = make_queue(), make_queue()
    await producer.enqueue(["a"])
    name = await crash(producer)
    client = await client_of(consumer)
    assert name in (await client.engine.beat(client.name)).consumers
    await silence(consumer, clock)
    assert list((await client.engine.beat(client.name)).consumers) == [client.name]
    assert (await consumer.stats()).ready == 1


async def test_what_is_proved_after_a_silence_is_not_taken_by_an_old_judgement(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(["a", "b"])
    stream = queue.leases(prefetch=2)
    lease = await anext(stream)
    client, engine = await client_of(queue), (await client_of(other)).engine
    await client.tasks.cancel()
    judged = (await engine.beat((await client_of(other)).name)).consumers[client.name]
    clock.advance(31.0)
    proved = await anext(stream)
    assert await engine.reap(client.name, judged) == (0, False)
    await lease.complete()
    await proved.complete()


@pytest.mark.parametrize("reads_on", [False, True])
async def test_who_was_silent_is_told_before_it_begins_what_is_somebody_elses(
    reads_on: bool, make_queue: MakeQueue, clock: ManualClock
) -> None:
    """Also where a stream has asked already what is left of its own."""
    queue, survivor = make_queue(), make_queue()
    await queue.enqueue(["a", "b"])
    stream = queue.leases(prefetch=1)
    lost, mine = await anext(stream), await anext(stream)
    await (await client_of(queue)).tasks.cancel()
    await silence(survivor, clock)
    await survivor.lease(1)
    await survivor.enqueue(["c"])
    if reads_on:
        await anext(stream)
    for lease in (lost, mine):
        with pytest.raises(LeaseLost, match="lost"):
            await lease.confirm()


async def test_to_confirm_a_lease_asks_nothing_of_the_store_while_it_is_heard(
    make_queue: MakeQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue()
    await queue.enqueue(["a"])
    (lease,) = await queue.lease()
    client = await client_of(queue)
    monkeypatch.setattr(client.engine, "held", None)
    clock.advance(29.0)
    await lease.confirm()
    await lease.complete()
    with pytest.raises(LeaseLost, match="settled before"):
        await lease.confirm()


async def test_settling_and_leasing_are_beats_too(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(range(20))
    (kept,) = await queue.lease()
    await (await client_of(queue)).tasks.cancel()
    for _ in range(8):
        await other.sweep()
        clock.advance(20.0)
        (lease,) = await queue.lease()
        await (await client_of(queue)).tasks.cancel()
        await other.sweep()
        clock.advance(20.0)
        await lease.complete()
    await other.sweep()
    await kept.complete()
    assert (await other.stats()).completed == 9


async def test_a_zombie_changes_nothing(make_queue: MakeQueue, clock: ManualClock) -> None:
    told: list[Event] = []
    zombie, survivor = make_queue(subscriber=told.append), make_queue()
    await zombie.enqueue([Entry(n, key=str(n)) for n in range(4)])
    leases = await zombie.lease(4)
    await (await client_of(zombie)).tasks.cancel()
    await silence(survivor, clock)
    (again,) = await survivor.lease()
    before = await survivor.stats()
    settlements: list[Callable[[Any], Any]] = [
        lambda lease: lease.complete(["child"], {"at": 1}, "result"),
        lambda lease: lease.release(5.0, "no"),
        lambda lease: lease.bury("no"),
        lambda lease: lease.give_back(),
    ]
    for lease, settle in zip(leases, settlements, strict=True):
        with pytest.raises(LeaseLost, match="Nothing was changed"):
            await settle(lease)
    assert await survivor.stats() == before
    assert await survivor.checkpoint("at") is None
    assert await survivor.results() == []
    lost = [event.request_ids[0] for event in told if isinstance(event, LeasesLost)]
    assert lost == [lease.id for lease in leases[:3]]
    await again.complete()


async def test_a_consumer_that_was_reaped_may_go_on(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, survivor = make_queue(), make_queue()
    await queue.enqueue(["x"])
    (lost,) = await queue.lease()
    await (await client_of(queue)).tasks.cancel()
    await silence(survivor, clock)
    with pytest.raises(LeaseLost):
        await lost.complete()
    (lease,) = await queue.lease()
    await lease.complete(enqueue=["y"])
    assert await survivor.dequeue() == ["y"]


async def test_its_heart_tells_a_consumer_what_it_has_lost(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    told: list[Event] = []
    queue, survivor = make_queue(subscriber=told.append), make_queue()
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    await (await client_of(queue)).tasks.cancel()
    await silence(survivor, clock)
    await beat_twice(queue)
    assert LeasesLost("fetch:test", (lease.id,)) in told
    with pytest.raises(LeaseLost):
        await lease.complete()


async def test_who_takes_up_says_so(make_queue: MakeQueue, clock: ManualClock) -> None:
    told: list[Event] = []
    dead, survivor = make_queue(), make_queue(subscriber=told.append)
    await dead.enqueue(range(3))
    await dead.lease(3)
    name = (await client_of(dead)).name.decode()
    await outlive(dead, survivor, clock)
    assert told == [ConsumerReaped("fetch:test", name, 3)]


@in_memory
async def test_who_has_a_name_that_is_no_text_is_taken_up_like_any_other(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    told: list[Event] = []
    survivor = make_queue(subscriber=told.append)
    await survivor.enqueue(["x"])
    engine = (await client_of(survivor)).engine
    await engine.lease(Op(b"no \xff text", 1), 1)
    await silence(survivor, clock)
    assert told == [ConsumerReaped("fetch:test", "no \ufffd text", 1)]
    assert await survivor.dequeue() == ["x"]


@in_memory
async def test_who_takes_up_in_several_steps_tells_it_once(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "STEP", 2)
    told: list[Event] = []
    dead, survivor = make_queue(), make_queue(subscriber=told.append)
    await dead.enqueue(range(3))
    await as_another(dead, here()._replace(pid=GONE))
    assert len(await dead.lease(3)) == 3
    name = await crash(dead)
    await survivor.sweep()
    assert told == [ConsumerReaped("fetch:test", name.decode(), 3)]


@in_memory
async def test_who_cannot_take_up_all_tells_what_it_has(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store goes away between two steps."""
    monkeypatch.setattr(settling, "STEP", 2)
    told: list[Event] = []
    dead, survivor = make_queue(), make_queue(subscriber=told.append, op_timeout=0.2)
    await dead.enqueue(range(3))
    await as_another(dead, here()._replace(pid=GONE))
    assert len(await dead.lease(3)) == 3
    await crash(dead)
    engine: Any = (await client_of(survivor)).engine
    reap: Callable[[bytes, int], Awaitable[Slice]] = engine.reap

    async def once(client: bytes, beat: int) -> Slice:
        monkeypatch.setattr(engine, "reap", away)
        return await reap(client, beat)

    async def away(client: bytes, beat: int) -> Slice:
        raise StoreUnavailable("away")

    monkeypatch.setattr(engine, "reap", once)
    with pytest.raises(StoreUnavailable):
        await survivor.sweep()
    monkeypatch.setattr(engine, "reap", reap)
    await survivor.sweep()
    counts = [event.leases for event in told if isinstance(event, ConsumerReaped)]
    assert sum(counts) == 3


async def test_more_than_a_step_is_taken_up(make_queue: MakeQueue, clock: ManualClock) -> None:
    dead, survivor = make_queue(), make_queue()
    await dead.enqueue(range(2_300))
    held = [await dead.lease(1_000) for _ in range(3)]
    assert sum(map(len, held)) == 2_300
    await outlive(dead, survivor, clock)
    assert await places(survivor) == {"ready": 2_300}
    assert sorted(await drain(survivor)) == list(range(2_300))


@pytest.mark.parametrize("lanes", [1, 3])
async def test_more_than_a_step_is_taken_up_in_the_order_it_was_leased(
    make_queue: MakeQueue, clock: ManualClock, lanes: int
) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(numbered(2 * STEP + 500, lanes))
    order = await lease_steps(queue, 3)
    waiting = [-1 - lane for lane in range(lanes)]
    await other.enqueue([Entry(number, lane=str(-1 - number)) for number in waiting])
    await outlive(queue, other, clock)
    taken = await lease_steps(other, 3)
    assert taken[:lanes] == waiting, "what waited goes first"
    assert per_lane(taken[lanes:], lanes) == per_lane(order, lanes)


async def test_a_dead_consumer_is_forgotten(make_queue: MakeQueue, clock: ManualClock) -> None:
    survivor = make_queue()
    for _ in range(3):
        dead = make_queue()
        await dead.enqueue(["x"])
        await dead.lease()
        await outlive(dead, survivor, clock)
    client = await client_of(survivor)
    assert list((await client.engine.beat(client.name)).consumers) == [client.name]


# --- the dead of this host, at once ------------------------------------------------------------


@between_processes
@pytest.mark.parametrize("reap", [True, False], ids=["waited for", "zombie"])
async def test_a_killed_process_is_taken_up_at_the_first_lease(
    make_queue: MakeQueue, store_url: str, reap: bool
) -> None:
    queue = make_queue()
    await queue.enqueue(["a", "b", "c"])
    with child("hold", store_url, 2) as process:
        assert said(process) == ["a", "b"]
        process.send_signal(signal.SIGKILL)
        if reap:
            process.wait(20)
        else:
            await eventually(_is_zombie(process.pid))
        leases = await queue.lease(9)
        assert sorted(items(leases)) == ["a", "b", "c"]
        assert {lease.item: lease.deaths for lease in leases} == {"a": 1, "b": 1, "c": 0}


def _is_zombie(pid: int) -> Callable[[], Any]:
    async def looks() -> bool:
        status = process_status(pid)
        return status is not None and status[0] == "Z"

    return looks


@between_processes
async def test_a_stopped_process_is_not_dead_but_becomes_a_zombie(
    make_queue: MakeQueue, store_url: str, clock: ManualClock
) -> None:
    queue = make_queue()
    await queue.enqueue(["a"])
    with child("hold", store_url, 1) as process:
        assert said(process) == ["a"]
        process.send_signal(signal.SIGSTOP)
        assert await queue.lease() == []
        await silence(queue, clock)
        (lease,) = await queue.lease()
        process.send_signal(signal.SIGCONT)
        go_on(process)
        assert said(process) == ["LeaseLost"]
    await lease.complete()
    assert (await accounted(queue)).completed == 1


async def as_another(queue: KVStoreQueue, place: Whereabouts | bytes) -> None:
    """Let the queue pass for a consumer that lives elsewhere."""
    client = await client_of(queue)
    client.name = place if isinstance(place, bytes) else make_name(place)


GONE = 2**22 + 1  # above the most a pid can be
ELSEWHERE = {
    "host": {"host": "another", "pid": GONE},
    "boot": {"boot": "another", "pid": GONE},
    "PID namespace": {"namespace": "pid:[1]", "pid": GONE},
    "unknown boot": {"boot": "", "pid": GONE},
    "unknown start": {"started": "", "pid": GONE},
    "alive": {},
}


async def leased_by(queue: KVStoreQueue, place: Whereabouts | bytes) -> None:
    await queue.enqueue(["x"])
    await as_another(queue, place)
    assert len(await queue.lease()) == 1
    await crash(queue)


@pytest.mark.parametrize("difference", [{"pid": GONE}, {"started": "1"}], ids=["gone", "reused"])
async def test_a_pid_that_is_gone_or_another_process(
    make_queue: MakeQueue, difference: dict[str, Any]
) -> None:
    await leased_by(make_queue(), here()._replace(**difference))
    (lease,) = await make_queue().lease()
    assert (lease.item, lease.deaths) == ("x", 1)


@pytest.mark.parametrize("difference", ELSEWHERE.values(), ids=ELSEWHERE)
async def test_of_others_only_their_silence_tells(
    make_queue: MakeQueue, clock: ManualClock, difference: dict[str, Any]
) -> None:
    await leased_by(make_queue(), here()._replace(**difference))
    survivor = make_queue()
    assert await survivor.lease() == []
    await silence(survivor, clock)
    assert items(await survivor.lease()) == ["x"]


@pytest.mark.parametrize("name", [b"somebody", b"a|b|c|d|e|f", b"|||||", b"\xff\xfe", b"a" * 900])
async def test_a_name_that_tells_nothing(
    make_queue: MakeQueue, clock: ManualClock, name: bytes
) -> None:
    await leased_by(make_queue(), name)
    survivor = make_queue()
    assert await survivor.lease() == []
    await silence(survivor, clock)
    assert items(await survivor.lease()) == ["x"]


def test_a_name_tells_where_its_consumer_lives() -> None:
    place = here()
    assert place.pid == os.getpid()
    assert place_of(make_name(place)) == place
    assert make_name(place) != make_name(place)
    assert not is_surely_dead(make_name(place), place)


def test_a_process_that_may_not_be_looked_at_is_not_dead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``/proc`` may hide what belongs to others; then it is unclear whether they live."""
    place = here()
    name = make_name(place)
    monkeypatch.setattr(consumers, "_PROC", tmp_path)
    assert not is_surely_dead(name, place)


def test_a_watchlist_counts_from_the_last_change() -> None:
    watchlist = Watchlist()
    assert watchlist.silent({b"a": 1, b"b": 1}, 0.0, 10.0) == []
    assert watchlist.silent({b"a": 2, b"b": 1}, 9.0, 10.0) == []
    assert watchlist.silent({b"a": 2, b"b": 1}, 10.0, 10.0) == [b"b"]
    assert watchlist.silent({b"a": 2, b"c": 1}, 18.9, 10.0) == []
    assert watchlist.silent({b"a": 2, b"c": 1}, 19.0, 10.0) == [b"a"]
    assert watchlist.silent({b"b": 1}, 99.0, 10.0) == [], "one that left and came back is new"
    watchlist.excuse(2.0)
    assert watchlist.silent({b"b": 1}, 110.9, 10.0) == []
    assert watchlist.silent({b"b": 1}, 111.0, 10.0) == [b"b"]
    watchlist.forget()
    assert watchlist.silent({b"b": 1}, 112.0, 10.0) == []


@between_processes
async def test_a_fork_is_another_consumer(make_queue: MakeQueue, store_url: str) -> None:
    queue = make_queue()
    await queue.enqueue(["parent's", "child's"])
    with child("fork", store_url) as process:
        forked, parent = said(process), said(process)
        assert process.wait(20) == 0
    assert (parent[1:], forked[1:]) == (["parent's", "done", 0], ["child's", "done", 0])
    assert parent[0] != forked[0]
    assert (await accounted(queue)).completed == 2


# --- leases that nobody holds ------------------------------------------------------------------


@pytest.mark.parametrize("another", [False, True], ids=["the only one", "another is held"])
async def test_a_dropped_lease_is_given_back_by_the_heartbeat(
    make_queue: MakeQueue, clock: ManualClock, another: bool
) -> None:
    told: list[Event] = []
    queue = make_queue(subscriber=told.append)
    await queue.enqueue(["dropped", "held"])
    leases = await queue.lease(1 + another)
    del leases[0]
    await spin()
    gc.collect()

    async def returned() -> bool:
        return LeasesReturned("fetch:test", 1) in told

    await as_time_passes(clock, returned)
    (lease,) = await queue.lease()
    assert (lease.item, lease.attempts, lease.deaths) == ("dropped", 0, 0)
    assert items(leases) == ["held"] * another


async def test_what_was_settled_in_this_very_moment_is_not_told_as_lost(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's list of what we hold may be newer than what our own callers have heard."""
    told: list[Event] = []
    queue = make_queue(subscriber=told.append)
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    client = await client_of(queue)
    heart = (await queue.open_session())._heart

    async def held(_: bytes) -> list[bytes]:
        while client.is_leasing:  # noqa: ASYNC110 - every turn of the loop counts here
            await asyncio.sleep(0)
        return []

    monkeypatch.setattr(client.engine, "held", held)
    settling = asyncio.create_task(lease.complete())
    await asyncio.sleep(0)
    await heart.reconcile()
    await settling
    assert not [event for event in told if isinstance(event, LeasesLost)]


async def test_a_lease_that_could_not_be_settled_is_not_kept_by_its_error(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    """Nobody waits for the garbage collector: an idle process may not run it for hours."""
    faulty = make_faulty(open_store())
    queue = make_queue(store=faulty)
    await queue.enqueue(["a"])
    (lease,) = await queue.lease()
    await impatient(queue)
    gc.disable()
    try:
        for call in range(1, 50):
            faulty.faults.plan(Fault.BEFORE, faulty.verb, call)
        with suppress(StoreUnavailable):
            await lease.release(error="no")
        faulty.faults.heal()
        await impatient(queue, 10.0)
        del lease
        await beat_twice(queue)
        assert await places(queue) == {"ready": 1}
    finally:
        gc.enable()


async def test_a_beat_gives_back_what_nobody_holds_and_nothing_else(make_queue: MakeQueue) -> None:
    queue = make_queue()
    await queue.enqueue(range(3))
    kept, dropped = await queue.lease(2)
    del dropped
    await spin()
    gc.collect()
    await queue.sweep()
    assert await places(queue) == {"ready": 2, "leased": 1}
    assert await queue.peek(9) == [1, 2]
    await kept.complete()


async def test_what_is_held_is_never_given_back(make_queue: MakeQueue) -> None:
    queue = make_queue()
    await queue.enqueue(range(50))
    held = await queue.lease(50)
    for _ in range(5):
        await asyncio.gather(queue.sweep(), *(lease.complete() for lease in held[:10]))
        held = held[10:]
    stats = await accounted(queue)
    assert (stats.completed, stats.leased, stats.ready) == (50, 0, 0)


async def test_a_lease_reply_that_was_given_up_is_found(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    """Granted, and the answer never came within the time allowed: nobody here knows of it."""
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    await queue.enqueue(["x"])
    await queue.sweep()
    await _lose_lease_replies(queue, store)
    store.faults.heal()
    await impatient(queue, 10.0)
    assert await places(queue) == {"leased": 1}
    await beat_twice(queue)
    (lease,) = await queue.lease()
    assert (lease.attempts, lease.deaths) == (0, 0)


async def _lose_lease_replies(queue: KVStoreQueue, store: Any) -> None:
    (await queue.open_session())._greeted = True
    await impatient(queue)
    store.faults.plan(Fault.AFTER, store.verb, 1)
    for call in range(2, 200):
        store.faults.plan(Fault.BEFORE, store.verb, call)
    with pytest.raises(Exception, match=r"planned fault|did not answer"):
        await queue.lease()


async def test_close_gives_back_and_spends_nothing(make_queue: MakeQueue) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(range(9))
    leases = await queue.lease(3) + await queue.lease(3)
    await queue.close()
    assert await other.peek(9) == list(range(9)), "as if they had never been leased"
    for lease in leases:
        with pytest.raises(LeaseLost):
            await lease.complete()
    again = await other.lease(9)
    assert {(lease.attempts, lease.deaths) for lease in again} == {(0, 0)}


@pytest.mark.parametrize("lanes", [1, 3])
async def test_more_than_a_step_is_given_back_to_where_it_stood(
    make_queue: MakeQueue, lanes: int
) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(numbered(2 * STEP + 500, lanes))
    order = await lease_steps(queue, 3)
    await queue.close()
    assert per_lane(await lease_steps(other, 3), lanes) == per_lane(order, lanes)
    assert (await accounted(other)).leased == 2 * STEP + 500


def numbered(count: int, lanes: int) -> list[Entry]:
    return [Entry(number, lane=str(number % lanes)) for number in range(count)]


async def lease_steps(queue: KVStoreQueue, steps: int) -> list[int]:
    return [item for _ in range(steps) for item in items(await queue.lease(STEP))]


def per_lane(numbers: list[int], lanes: int) -> list[list[int]]:
    return [[number for number in numbers if number % lanes == lane] for lane in range(lanes)]


async def test_a_close_that_failed_can_be_finished(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    await queue.enqueue(range(3))
    leases = await queue.lease(2)
    client, patient = await client_of(queue), queue._options
    await impatient(queue)
    for call in range(1, 200):
        store.faults.plan(Fault.BEFORE, store.verb, call)
    with pytest.raises(StoreUnavailable):
        await queue.close()
    store.faults.heal()
    client.options = queue._options = patient
    await queue.close()
    assert await places(make_queue()) == {"ready": 3}
    for lease in leases:
        with pytest.raises(LeaseLost):
            await lease.complete()


# --- what is told ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (Retried("ns", "id", 1, 5.0, "no"), logging.INFO),
        (LeasesReturned("ns", 1), logging.INFO),
        (Buried("ns", "id", "failed", "no"), logging.WARNING),
        (LeasesLost("ns", ("id",)), logging.WARNING),
        (ConsumerReaped("ns", "name", 1), logging.WARNING),
        (HeartbeatMissed("ns", "away"), logging.WARNING),
        (StepsForgotten("ns", 3), logging.WARNING),
    ],
    ids=lambda value: type(value).__name__,
)
def test_events_are_logged(event: Event, level: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "data_fetcher_core.queue"):
        log_event(event)
    ((_, told_level, text),) = caplog.record_tuples
    assert (told_level, text) == (level, str(event))


# --- poison ------------------------------------------------------------------------------------


async def live_and_die(
    make_queue: MakeQueue, clock: ManualClock, batch: int, killers: set[str]
) -> KVStoreQueue:
    """Processes that lease a batch and die at once if a killer is in it; the last one's queue."""
    for _ in range(200):
        queue = make_queue(max_deaths=3)
        await silence(queue, clock)
        while held := await queue.lease(batch):
            if killers & set(items(held)):
                break
            for lease in held:
                await lease.complete()
        if not held:
            return queue
        await crash(queue)
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("batch", [1, 4, 100])
@pytest.mark.parametrize(
    "killers", [{"3"}, {"0", "1"}, {"0", "9"}], ids=["one", "neighbours", "apart"]
)
async def test_the_killer_is_buried_and_its_neighbours_are_not(
    make_queue: MakeQueue, clock: ManualClock, batch: int, killers: set[str]
) -> None:
    await make_queue(max_deaths=3).enqueue([str(n) for n in range(10)])
    queue = await live_and_die(make_queue, clock, batch, killers)
    dead = await letters(queue)
    assert {letter.item for letter in dead} == killers
    assert {(letter.reason, letter.deaths) for letter in dead} == {(DeathReason.POISONED, 3)}
    assert (await accounted(queue)).completed == 10 - len(killers)


@pytest.mark.parametrize("prefetch", [1, 5, 64])
async def test_a_killer_takes_the_whole_buffer_with_it_and_is_found_out(
    make_queue: MakeQueue, clock: ManualClock, prefetch: int
) -> None:
    """It kills when it is started; what was prefetched beside it dies too, and is innocent."""
    await make_queue(max_deaths=3).enqueue([str(n) for n in range(20)])
    for _ in range(50):
        queue = make_queue()
        await silence(queue, clock)
        if await _worked_through(queue, prefetch, killers={"4", "11"}):
            break
        await crash(queue)
    dead = await letters(queue)
    assert {(letter.item, letter.reason) for letter in dead} == {
        ("4", DeathReason.POISONED),
        ("11", DeathReason.POISONED),
    }
    assert (await accounted(queue)).completed == 18


async def _worked_through(queue: KVStoreQueue, prefetch: int, killers: set[str]) -> bool:
    """Read until all is drained, or until something kills the process."""
    async for lease in queue.leases(prefetch=prefetch, until="drained"):
        if lease.item in killers:
            return False
        await lease.complete()
    return True


async def test_a_suspect_is_leased_alone(make_queue: MakeQueue, clock: ManualClock) -> None:
    first = make_queue(max_deaths=2)
    await first.enqueue(["suspect"])
    await first.lease()
    queue = make_queue()
    await outlive(first, queue, clock)
    await queue.enqueue(["a", "b"])
    (suspect,) = await queue.lease(9)
    assert suspect.item == "suspect"
    assert await queue.lease(9) == [], "nothing beside it"
    other = make_queue()
    held = await other.lease(9)
    assert items(held) == ["a", "b"]
    await suspect.release()
    assert await other.lease(9) == [], "and it beside nothing"
    for lease in held:
        await lease.complete()
    assert items(await other.lease(9)) == ["suspect"]


async def test_who_waits_goes_on_as_soon_as_a_suspect_is_settled(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """Nothing tells of it but the process itself: the others had been ready all the time."""
    first, queue = make_queue(max_deaths=2), make_queue()
    await first.enqueue(["suspect"])
    await first.lease()
    await outlive(first, queue, clock)
    await queue.enqueue(["a", "b"])
    (suspect,) = await queue.lease()
    assert suspect.item == "suspect"
    async with background(queue.lease(2, wait=60.0)) as waiting:
        await spin()
        await settled(queue)
        assert not waiting.done()
        await suspect.complete()
        async with asyncio.timeout(5.0):
            assert items(await waiting) == ["a", "b"]


async def test_who_waits_gets_a_suspect_once_its_own_are_settled(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    first, queue = make_queue(max_deaths=2), make_queue()
    await first.enqueue(["suspect"])
    await first.lease()
    await queue.enqueue(["mine"])
    (mine,) = await queue.lease()
    await outlive(first, queue, clock)
    waiting = asyncio.ensure_future(queue.lease(wait=HOUR))
    await asyncio.sleep(0)
    await mine.complete()

    async def served() -> bool:
        return waiting.done()

    await as_time_passes(clock, served)
    assert items(await waiting) == ["suspect"]


# --- loops and tasks ---------------------------------------------------------------------------


def test_one_queue_in_successive_event_loops(store_maker: OpenStore, clock: ManualClock) -> None:
    queue = KVStoreQueue(store_maker(), "fetch:test", clock=clock)

    async def begin() -> None:
        await queue.enqueue(["a", "b", "left behind"])
        first, *_ = await queue.lease(3)
        await first.complete()
        await queue._store.close()

    async def resume() -> list[Any]:
        assert await queue.dequeue(9) == []
        await silence(queue, clock)
        taken = await queue.dequeue(9)
        await queue.close()
        await queue._store.close()
        return taken

    asyncio.run(begin())
    assert sorted(asyncio.run(resume())) == ["b", "left behind"]


def test_closed_in_each_loop(store_maker: OpenStore, clock: ManualClock) -> None:
    queue = KVStoreQueue(store_maker(), "fetch:test", clock=clock)

    async def once(number: int) -> list[Any]:
        await queue.enqueue([number])
        await queue.lease(9)
        await queue.close()
        left = await queue.peek(9)
        await queue.close()
        await queue._store.close()
        return left

    assert [asyncio.run(once(n)) for n in range(3)] == [[0], [0, 1], [0, 1, 2]]


@pytest.fixture
async def entered(make_queue: MakeQueue) -> AsyncIterator[KVStoreQueue]:
    """Entered in one task and left in another, as fixtures are."""
    entered_in = asyncio.current_task()
    async with make_queue() as queue:
        yield queue
    assert queue._session is None
    assert entered_in is not None


async def test_a_queue_entered_by_a_fixture(entered: KVStoreQueue) -> None:
    waiting = asyncio.ensure_future(entered.lease(wait=HOUR))
    await asyncio.sleep(0)
    await entered.enqueue(["x"])
    (lease,) = await waiting
    assert lease.item == "x"
