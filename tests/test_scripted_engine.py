"""Every verb of the scripted engine, against a real server."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from data_fetcher_core.queue.engine import (
    STEP,
    Addition,
    Admission,
    Admitted,
    LaneChange,
    Move,
    Op,
    Outcome,
    Reason,
    Settlement,
    Slice,
)
from data_fetcher_core.queue.records import decode
from data_fetcher_core.queue.scripted_engine import ScriptedEngine
from data_fetcher_core.testing.clock import ManualClock
from tests.scripted import FIRST_BEAT, ME, START, Numbered, add, complete, ids, new, opened
from tests.servers import RedisServer

SECOND = 1_000_000


@pytest.fixture
def op() -> Numbered:
    return Numbered()


@pytest.fixture
async def engine(redis_url: str, clock: ManualClock) -> AsyncIterator[ScriptedEngine]:
    async with opened(redis_url, clock) as engine:
        yield engine


# --- taking in ---------------------------------------------------------------------------------


async def test_a_key_is_taken_once(engine: ScriptedEngine, op: Numbered) -> None:
    first = new("a", key="k", key_id=b"from-k")
    second = new("b", key="k", key_id=b"from-k")
    other = new("c", key="own", told_id=b"c")
    again = new("d", key="own", key_id=b"from-own")
    [admitted] = await engine.add(op(), [Addition([first, second, other, again])])
    assert admitted == [
        Admitted(Admission.NEW, b"a"),
        Admitted(Admission.DUPLICATE, b"from-k"),
        Admitted(Admission.NEW, b"c"),
        Admitted(Admission.DUPLICATE, b"c"),
    ]


async def test_a_full_queue_takes_what_fits(
    redis_url: str, clock: ManualClock, op: Numbered
) -> None:
    async with opened(redis_url, clock, capacity=3) as engine:
        part = Addition([new(str(n)) for n in range(4)])
        whole = Addition([new("x"), new("y")], {b"cursor": b"2"}, whole=True)
        first, second = await engine.add(op(), [part, whole])
        assert [a.admission for a in first] == [Admission.NEW] * 3 + [Admission.FULL]
        assert [a.admission for a in second] == [Admission.FULL] * 2
        assert await engine.checkpoints([b"cursor"]) == [None]


async def test_a_whole_addition_counts_each_key_once(
    redis_url: str, clock: ManualClock, op: Numbered
) -> None:
    async with opened(redis_url, clock, capacity=1) as engine:
        twice = [new("a", key="k"), new("b", key="k")]
        [admitted] = await engine.add(op(), [Addition(twice, {b"c": b"1"}, whole=True)])
        assert [a.admission for a in admitted] == [Admission.NEW, Admission.DUPLICATE]
        assert await engine.checkpoints([b"c", b"other"]) == [b"1", None]


async def test_more_than_a_step_is_added_in_parts(engine: ScriptedEngine, op: Numbered) -> None:
    halves = [Addition([new(f"{half}-{n}") for n in range(700)]) for half in range(3)]
    again = op()
    admitted = await engine.add(again, halves)
    assert [len(one) for one in admitted] == [700, 700, 700]
    assert await engine.add(again, halves) == admitted
    assert (await engine.stats()).ready == 2100


async def test_delays_and_expiry_follow_the_stores_clock(
    engine: ScriptedEngine, clock: ManualClock, op: Numbered
) -> None:
    later, fleeting = new("later", delay=5 * SECOND), new("fleeting", expires_in=3 * SECOND)
    await add(engine, op(), later, fleeting)
    clock.advance(4.0)
    granted = await engine.lease(op(), 5)
    assert (granted.grants, granted.wait) == ([], SECOND)
    [letter] = await engine.dead(None, 5)
    assert (letter.reason, decode(letter.record).id) == (Reason.EXPIRED, b"fleeting")
    clock.advance(1.0)
    [grant] = (await engine.lease(op(), 1)).grants
    assert decode(grant.record).ready_at == clock.microseconds


# --- handing out -------------------------------------------------------------------------------


async def test_a_batch_is_fair_to_lanes(engine: ScriptedEngine, op: Numbered) -> None:
    await add(engine, op(), *[new(f"{lane}{n}", lane=lane) for lane in "abc" for n in range(100)])
    granted = await engine.lease(op(), 60)
    assert Counter(decode(grant.record).lane for grant in granted.grants) == {
        b"a": 20,
        b"b": 20,
        b"c": 20,
    }
    assert ids(granted.grants)[:6] == ["a0", "b0", "c0", "a1", "b1", "c1"]


async def test_many_lanes_are_served_in_turn(engine: ScriptedEngine, op: Numbered) -> None:
    await add(engine, op(), *[new(f"{n}", lane=f"{n:03}") for n in range(300)])
    served = [name for _ in range(3) for name in ids((await engine.lease(op(), 100)).grants)]
    assert served == [str(n) for n in range(300)]


async def test_only_named_lanes_and_then_those_to_steal_from(
    engine: ScriptedEngine, op: Numbered
) -> None:
    await add(engine, op(), *[new(f"{lane}{n}", lane=lane) for lane in "abcd" for n in range(2)])
    granted = await engine.lease(op(), 5, [b"b", b"c", b"b"], [b"a"])
    assert ids(granted.grants) == ["b0", "c0", "b1", "c1", "a0"]
    assert (await engine.lease(op(), 5, [], [])).grants == []


async def test_a_lane_with_an_interval_gives_one_at_a_time(
    engine: ScriptedEngine, clock: ManualClock, op: Numbered
) -> None:
    await engine.change_lanes(op(), [LaneChange(b"slow", interval=2 * SECOND)])
    await add(engine, op(), new("a", lane="slow"), new("b", lane="slow"), new("c", lane="fast"))
    granted = await engine.lease(op(), 5)
    assert ids(granted.grants) == ["a", "c"]
    assert [grant.interval for grant in granted.grants] == [2 * SECOND, 0]
    assert granted.wait == 2 * SECOND
    clock.advance(2.0)
    assert ids((await engine.lease(op(), 5)).grants) == ["b"]


async def test_burst_is_kept_in_arrivals_only_while_it_matters(
    engine: ScriptedEngine, clock: ManualClock, op: Numbered, redis_server: RedisServer
) -> None:
    await engine.change_lanes(op(), [LaneChange(b"l", interval=SECOND, burst=2)])
    await add(engine, op(), *[new(str(n), lane="l") for n in range(9)])
    assert len((await engine.lease(op(), 9)).grants) == 3
    with redis_server.client() as client:
        assert client.zcard(START + b"arrivals") == 1
        clock.advance(60.0)
        await engine.lease(op(), 0)
        assert client.zcard(START + b"arrivals") == 0


@pytest.mark.parametrize("what", ["due", "expired", "gates"])
async def test_what_is_too_much_for_one_step_is_done_in_several(
    what: str, engine: ScriptedEngine, clock: ManualClock, op: Numbered
) -> None:
    for start in range(0, 1500, 500):
        batch = [str(n) for n in range(start, start + 500)]
        delay, expires_in = int(what == "due"), int(what == "expired")
        if what == "gates":
            await engine.change_lanes(op(), [LaneChange(n.encode(), shut=1) for n in batch])
        requests = [
            new(n, lane=n if what == "gates" else "l", delay=delay, expires_in=expires_in)
            for n in batch
        ]
        await add(engine, op(), *requests)
    clock.advance(1.0)
    lanes = None if what == "expired" else [b"nowhere"]
    waits = [(await engine.lease(op(), 1, lanes)).wait for _ in range(2)]
    assert waits == [0, None]
    stats = await engine.stats()
    assert (stats.ready, stats.dead) == ((0, 1500) if what == "expired" else (1500, 0))


async def test_a_limit_counts_what_is_in_flight(engine: ScriptedEngine, op: Numbered) -> None:
    await engine.change_lanes(op(), [LaneChange(b"", limit=2)])
    await add(engine, op(), *[new(str(n)) for n in range(5)])
    first = await engine.lease(op(), 5)
    assert ids(first.grants) == ["0", "1"]
    await engine.settle(op(), [complete(first.grants[0])])
    assert ids((await engine.lease(op(), 5)).grants) == ["2"]
    await engine.change_lanes(op(), [LaneChange(b"", limit=-1)])
    assert ids((await engine.lease(op(), 5)).grants) == ["3", "4"]


async def test_a_gate_outlives_the_emptiness_of_its_lane(
    engine: ScriptedEngine, clock: ManualClock, op: Numbered
) -> None:
    await engine.change_lanes(op(), [LaneChange(b"l", shut=9 * SECOND)])
    await add(engine, op(), new("a", lane="l"))
    assert (await engine.lease(op(), 1)).wait == 9 * SECOND
    assert len(await engine.peek(5)) == 1
    await engine.change_lanes(op(), [LaneChange(b"l", reopen=True)])
    assert ids((await engine.lease(op(), 1)).grants) == ["a"]


async def test_what_may_kill_is_leased_alone(
    redis_url: str, clock: ManualClock, op: Numbered
) -> None:
    async with opened(redis_url, clock, max_deaths=2) as engine:
        await add(engine, op(), new("killer", lane="k"))
        await engine.lease(Op(b"dies", 1), 1)
        await engine.reap(b"dies", FIRST_BEAT)
        await add(engine, op(), new("a", lane="a"), new("b", lane="a"))
        [killer] = (await engine.lease(op(), 5)).grants
        assert decode(killer.record).deaths == 1
        assert (await engine.lease(op(), 5)).grants == []
        await engine.settle(op(), [Settlement(killer.token, Move.GIVE_BACK)])
        others = await engine.lease(op(), 5, [b"a"])
        passed = await engine.lease(op(), 5)
        assert (ids(others.grants), passed.grants, passed.suspect) == (["a", "b"], [], True)


# --- settling ----------------------------------------------------------------------------------


async def test_completing_brings_children_checkpoint_and_result(
    engine: ScriptedEngine, op: Numbered
) -> None:
    await add(engine, op(), new("page", key="page"))
    [grant] = (await engine.lease(op(), 1)).grants
    children = [new("child", lane="l"), new("again", key="page", key_id=b"page")]
    addition = Addition(children, {b"cursor": b"7"})
    [settled] = await engine.settle(op(), [complete(grant, addition=addition, result=b"")])
    assert settled.outcome is Outcome.DONE
    assert [a.admission for a in settled.admitted] == [Admission.NEW, Admission.DUPLICATE]
    assert await engine.checkpoints([b"cursor"]) == [b"7"]
    assert await engine.results(0, 5) == [(1, b"")]
    stats = await engine.stats()
    assert (stats.ready, stats.leased, stats.completed, stats.unaccounted) == (1, 0, 1, 0)


async def test_outcomes_come_in_the_order_of_the_settlements(
    engine: ScriptedEngine, op: Numbered
) -> None:
    await add(engine, op(), *[new(str(n)) for n in range(4)])
    grants = (await engine.lease(op(), 4)).grants
    child = Addition([new("child")])
    settlements = [
        complete(grants[0], addition=child),
        complete(grants[1]),
        Settlement(b"unknown", Move.COMPLETE, addition=child),
        Settlement(grants[1].token, Move.GIVE_BACK),
        complete(grants[2], addition=Addition([new("other")])),
    ]
    settled = await engine.settle(op(), settlements)
    assert [one.outcome for one in settled] == [
        *(Outcome.DONE, Outcome.DONE, Outcome.LOST, Outcome.LOST, Outcome.DONE)
    ]
    assert [[a.id for a in one.admitted] for one in settled] == [[b"child"], [], [], [], [b"other"]]


async def test_children_beyond_one_step_go_in_parts(
    engine: ScriptedEngine, op: Numbered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_fetcher_core.queue.scripted_engine.MOST_CHILDREN", 3)
    await add(engine, op(), *[new(str(n)) for n in range(4)])
    grants = (await engine.lease(op(), 4)).grants
    settlements = [
        complete(grant, addition=Addition([new(f"{n}-{child}") for child in range(2)]))
        for n, grant in enumerate(grants)
    ]
    again = op()
    settled = await engine.settle(again, settlements)
    assert [len(one.admitted) for one in settled] == [2, 2, 2, 2]
    assert await engine.settle(again, settlements) == settled
    assert (await engine.stats()).ready == 8


async def test_ten_thousand_children_are_one_step(engine: ScriptedEngine, op: Numbered) -> None:
    await add(engine, op(), new("page"))
    [grant] = (await engine.lease(op(), 1)).grants
    children = Addition([new(str(n), key=str(n), told_id=b"x") for n in range(10_000)])
    [settled] = await engine.settle(op(), [complete(grant, addition=children)])
    assert {a.admission for a in settled.admitted} == {Admission.NEW}
    [grant] = (await engine.lease(op(), 1)).grants
    [settled] = await engine.settle(op(), [complete(grant, addition=children)])
    assert {a.admission for a in settled.admitted} == {Admission.DUPLICATE}


async def test_a_new_head_keeps_the_body(engine: ScriptedEngine, op: Numbered) -> None:
    await add(engine, op(), new("a", lane="l", key="k"), new("b"))
    one, other = (await engine.lease(op(), 2)).grants
    heads = [
        decode(grant.record).head().replace(b"\0\0", b"\0\7", 1) for grant in (one, other)
    ]  # attempts: 7
    release = Settlement(one.token, Move.RELEASE, head=heads[0])
    bury = Settlement(other.token, Move.BURY, head=heads[1], detail=b"gone")
    await engine.settle(op(), [release, bury])
    [grant] = (await engine.lease(op(), 5)).grants
    record = decode(grant.record)
    assert (record.attempts, record.body, record.key, record.lane) == (7, b"body of a", b"k", b"l")
    [letter] = await engine.dead(None, 5)
    assert (letter.detail, decode(letter.record).attempts) == (b"gone", 7)


# --- consumers ---------------------------------------------------------------------------------


async def test_beats_grow_with_every_sign_of_life(engine: ScriptedEngine, op: Numbered) -> None:
    await add(engine, op(), new("a"))
    [grant] = (await engine.lease(op(), 1)).grants
    held, beats = await engine.beat(ME)
    assert (held, list(beats)) == (1, [ME])
    assert await engine.held(ME) == [grant.token]
    await engine.settle(op(), [complete(grant)])
    assert await engine.beat(ME) == (0, {ME: beats[ME] + 2})


async def test_only_the_silent_are_reaped(engine: ScriptedEngine, op: Numbered) -> None:
    await add(engine, op(), new("a"))
    [grant] = (await engine.lease(op(), 1)).grants
    beats = (await engine.beat(b"other")).consumers
    assert await engine.reap(ME, beats[ME] - 1) == Slice(0, more=False)
    assert await engine.reap(ME, beats[ME]) == Slice(1, more=False)
    assert list((await engine.beat(b"other")).consumers) == [b"other"]
    assert await engine.settle(op(), [complete(grant)]) == [(Outcome.LOST, ())]
    # A zombie leaves no trace of itself.
    assert list((await engine.beat(b"other")).consumers) == [b"other"]


async def test_leaving_and_reaping_go_in_steps(
    engine: ScriptedEngine, op: Numbered, redis_server: RedisServer
) -> None:
    for start in range(0, 2500, STEP):
        await add(engine, op(), *[new(f"{n:05}") for n in range(start, start + STEP)])
    order = [name for _ in range(3) for name in ids((await engine.lease(op(), STEP)).grants)]
    slices = [await engine.leave(ME) for _ in range(3)]
    assert slices == [Slice(STEP, more=True), Slice(STEP, more=True), Slice(STEP, more=False)]
    shown = [decode(raw).id.decode() for raw in await engine.peek(STEP)]
    assert shown == order[:STEP]
    with redis_server.client() as client:
        assert client.hkeys(START + b"ops") == []
        assert not client.exists(START + b"consumers", START + b"inflight")
