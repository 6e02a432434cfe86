"""Looking after a run in Redis: dead letters, cancelling, clearing, and the run itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from data_fetcher_core.core import QueueStats
from data_fetcher_core.errors import ConfigurationError, StoreCorrupt, StoreError, StoreLost
from data_fetcher_core.queue.engine import (
    STEP,
    Addition,
    Admission,
    LaneChange,
    Move,
    NewRequest,
    Outcome,
    Settlement,
    Slice,
)
from data_fetcher_core.queue.records import decode
from data_fetcher_core.queue.scripted_engine import ScriptedEngine
from data_fetcher_core.testing.clock import ManualClock
from tests.scripted import ME, START, Numbered, add, clear, complete, contents, ids, new, opened
from tests.servers import RedisCluster, RedisServer

SECOND = 1_000_000


@pytest.fixture
def op() -> Numbered:
    return Numbered()


@pytest.fixture
async def engine(redis_url: str, clock: ManualClock) -> AsyncIterator[ScriptedEngine]:
    async with opened(redis_url, clock) as engine:
        yield engine


# --- looking after -----------------------------------------------------------------------------


async def test_dead_letters_by_pages(engine: ScriptedEngine, op: Numbered) -> None:
    await add(engine, op(), *[new(str(n)) for n in range(30)])
    grants = (await engine.lease(op(), 30)).grants
    await engine.settle(op(), [Settlement(g.token, Move.BURY) for g in grants])
    first = await engine.dead(None, 20)
    rest = await engine.dead(first[-1].position, 20)
    assert [decode(x.record).id.decode() for x in first + rest] == [str(n) for n in range(30)]
    positions = [first[3].position, rest[0].position, rest[0].position]
    assert await engine.requeue(op(), positions) == 2
    assert ids((await engine.lease(op(), 5)).grants) == ["3", "20"]
    assert (await engine.stats()).dead == 28


async def test_purging_goes_by_age_and_in_steps(
    engine: ScriptedEngine, clock: ManualClock, op: Numbered
) -> None:
    for _ in range(2):
        await add(engine, op(), *[new(str(n), expires_in=1) for n in range(STEP)])
        clock.advance(1.0)
        await engine.lease(op(), 1)
    assert await engine.purge(op(), 3 * SECOND) == Slice(0, more=False)
    assert await engine.purge(op(), SECOND) == Slice(STEP, more=False)
    await add(engine, op(), new("more", expires_in=1))
    clock.advance(1.0)
    await engine.lease(op(), 1)
    assert await engine.purge(op(), 0) == Slice(STEP, more=True)
    assert await engine.purge(op(), 0) == Slice(1, more=False)
    assert (await engine.stats()).purged == 2001


async def test_cancelling_reaches_every_place(engine: ScriptedEngine, op: Numbered) -> None:
    await add(engine, op(), new("leased", key="l"), new("stays"))
    [grant] = (await engine.lease(op(), 1)).grants
    waiting = [new(f"w{n}", lane=f"{n % 7}", key=f"k{n}", priority=n % 6 + 1) for n in range(40)]
    await add(engine, op(), *waiting, new("delayed", delay=SECOND, key="d"))
    chosen = [b"leased", b"delayed", *(request.id for request in waiting), b"unknown"]
    assert await engine.cancel(op(), chosen, forget=False) == 42
    assert [decode(raw).id for raw in await engine.peek(9)] == [b"stays"]
    [admitted] = await engine.add(op(), [Addition([new("x", key="k3"), new("y", key="d")])])
    assert {a.admission for a in admitted} == {Admission.DUPLICATE}
    release = Settlement(grant.token, Move.RELEASE, head=decode(grant.record).head())
    assert await engine.settle(op(), [release]) == [(Outcome.CANCELLED, [])]
    assert await engine.stats() == QueueStats(
        ready=1, lanes=1, enqueued=43, duplicates=2, cancelled=42, keyed=42
    )


@pytest.mark.parametrize(
    ("move", "outcome"),
    [
        (Move.COMPLETE, Outcome.DONE),
        (Move.DROP, Outcome.DONE),
        (Move.RELEASE, Outcome.CANCELLED),
        (Move.BURY, Outcome.CANCELLED),
        (Move.GIVE_BACK, Outcome.CANCELLED),
    ],
)
async def test_completing_wins_over_cancelling_and_no_mark_is_left(
    engine: ScriptedEngine,
    op: Numbered,
    redis_server: RedisServer,
    move: Move,
    outcome: Outcome,
) -> None:
    await add(engine, op(), new("a"))
    [grant] = (await engine.lease(op(), 1)).grants
    assert await engine.cancel(op(), [b"a", b"unknown"], forget=False) == 1
    await add(engine, op(), new("a"))
    assert await engine.settle(op(), [Settlement(grant.token, move)]) == [(outcome, [])]
    with redis_server.client() as client:
        assert client.exists(START + b"cancelled") == 0
    assert ids((await engine.lease(op(), 9)).grants) == ["a"]


async def test_a_lane_that_cancelling_empties_begins_its_burst_anew(
    redis_url: str, clock: ManualClock, op: Numbered
) -> None:
    async with opened(redis_url, clock, critical_burst=1) as engine:
        await add(engine, op(), new("first", priority=6), new("second"))
        assert ids((await engine.lease(op(), 1)).grants) == ["first"]
        await engine.cancel(op(), [b"second"], forget=False)
        await add(engine, op(), new("third"), new("fourth", priority=6))
        assert ids((await engine.lease(op(), 1)).grants) == ["fourth"]


async def test_cancelling_can_forget_keys(engine: ScriptedEngine, op: Numbered) -> None:
    await add(engine, op(), new("leased", key="l"))
    await engine.lease(op(), 1)
    await add(engine, op(), new("a", key="a" * 100), new("b", key="b", delay=5), new("c", key="c"))
    assert await engine.cancel(op(), [b"leased", b"a", b"b"], forget=True) == 3
    keys = ["l", "a" * 100, "b", "c"]
    [admitted] = await engine.add(op(), [Addition([new(key, key=key) for key in keys])])
    assert [a.admission for a in admitted] == [Admission.NEW] * 3 + [Admission.DUPLICATE]


async def test_a_step_of_a_cancellation_that_comes_late_changes_nothing(
    engine: ScriptedEngine, op: Numbered, redis_server: RedisServer
) -> None:
    """It was on its way for so long that it was sent again, and that was the end of it."""
    await add(engine, op(), new("a", key="a"))
    [held] = (await engine.lease(op(), 1)).grants
    cancelling = op()
    assert await engine.cancel(cancelling, [b"a"], forget=True) == 1
    await add(engine, op(), new("a", key="a"), new("a", delay=SECOND))
    place = {"priority": 1, "offset": 0, "walks_seen": -1, "lane_count": 1}
    args = {"forget": 1, "id_count": 1, **place}
    with redis_server.client() as client:
        before = contents(client)
        for verb, rest in (("cancel_ready", [b"", b"a"]), ("cancel_delayed", [b"a"])):
            with pytest.raises(StoreError, match="after its end"):
                await engine._operate(verb, cancelling, args, rest)
        late = await engine._operate("cancel_end", cancelling, args, [b"a"], part=2)
        assert late == [1, []]
        assert contents(client) == before
    assert await engine.settle(op(), [complete(held)]) == [(Outcome.DONE, [])]


async def test_cancelling_in_a_long_list(engine: ScriptedEngine, op: Numbered) -> None:
    for start in range(0, 5000, STEP):
        batch = [new(str(n), delay=n % 2) for n in range(start, start + STEP)]
        await add(engine, op(), *batch)
    chosen = [str(n).encode() for n in range(5000) if n % 7 == 0 or 1990 < n < 2010]
    assert await engine.cancel(op(), chosen, forget=False) == len(chosen)
    stats = await engine.stats()
    assert (stats.size, stats.cancelled) == (5000 - len(chosen), len(chosen))
    assert await engine.recount() == {}


async def test_clearing_keeps_leases(
    engine: ScriptedEngine, op: Numbered, redis_server: RedisServer
) -> None:
    await add(engine, op(), new("held"), new("a", key="k"), new("b", delay=SECOND))
    [grant] = (await engine.lease(op(), 1)).grants
    assert sum(await clear(engine, op)) == 2
    with redis_server.client() as client:
        assert list(client.scan_iter(START + b"seen:*")) == []
    [[admitted]] = await engine.add(op(), [Addition([new("a", key="k")])])
    assert admitted.admission is Admission.NEW
    assert await engine.settle(op(), [complete(grant)]) == [(Outcome.DONE, [])]


async def test_clearing_goes_by_lanes_in_steps(engine: ScriptedEngine, op: Numbered) -> None:
    for start in range(0, 2500, 500):
        await add(engine, op(), *[new(str(n), lane=str(n)) for n in range(start, start + 500)])
    await engine.change_lanes(op(), [LaneChange(b"1", shut=SECOND), LaneChange(b"2", shut=SECOND)])
    dropped = await clear(engine, op)
    assert [count for count in dropped if count] == [1000, 1000, 500]
    assert (await engine.stats()).cleared == 2500


async def test_results_keep_their_numbers(engine: ScriptedEngine, op: Numbered) -> None:
    await add(engine, op(), *[new(str(n)) for n in range(5)])
    grants = (await engine.lease(op(), 5)).grants
    await engine.settle(op(), [complete(g, result=b"r%d" % n) for n, g in enumerate(grants[:4])])
    assert await engine.results(1, 2) == [(2, b"r1"), (3, b"r2")]
    await engine.trim_results(3)
    await engine.trim_results(2)
    assert await engine.results(0, 9) == [(4, b"r3")]
    await engine.trim_results(99)
    await engine.settle(op(), [complete(grants[4], result=b"last")])
    assert await engine.results(0, 9) == [(5, b"last")]


async def test_counts_that_were_wrong_are_mended(
    engine: ScriptedEngine, op: Numbered, redis_server: RedisServer
) -> None:
    await engine.change_lanes(op(), [LaneChange(b"l", limit=1)])
    await add(engine, op(), new("a", lane="l"), new("b", lane="l"), new("c", delay=SECOND))
    [grant] = (await engine.lease(op(), 1)).grants
    with redis_server.client() as client:
        client.hset(START + b"stats", mapping={"ready": 7, "leased": 0})
        client.hset(START + b"inflight", mapping={b"l": 3, b"gone": 1})
    assert await engine.recount() == {
        "ready": (7, 1),
        "leased": (0, 1),
        "in_flight:l": (3, 1),
        "in_flight:gone": (1, 0),
    }
    assert await engine.recount() == {}
    await engine.settle(op(), [complete(grant)])
    assert ids((await engine.lease(op(), 1)).grants) == ["b"]


# --- the run -----------------------------------------------------------------------------------


async def test_the_first_opener_decides_unless_forced(redis_url: str) -> None:
    async with opened(redis_url, capacity=1, max_deaths=3) as engine:
        other = await engine.open({"capacity": "2", "lane_burst": "4"}, ())
        assert other == {"capacity": "1", "max_deaths": "3", "lane_burst": "4"}
        forced = await engine.open({"capacity": "2"}, ["capacity"])
        assert forced["capacity"] == "2"


async def test_forgetting_leaves_a_new_run(redis_url: str, redis_server: RedisServer) -> None:
    op = Numbered()
    async with opened(redis_url, capacity=5) as engine, opened(redis_url) as other:
        await add(engine, op(), new("a", key="k", lane="l"), new("b"), new("c", delay=SECOND))
        grants = (await other.lease(op(), 2)).grants
        await engine.lease(op(), 1, [b"nowhere"])
        await engine.forget()
        with redis_server.client() as client:
            assert client.keys() == [START + b"state"]
            assert set(client.hkeys(START + b"state")) == {b"layout", b"generation", b"ended"}
        settled = await other.settle(op(), [complete(grant) for grant in grants])
        assert [one.outcome for one in settled] == [Outcome.LOST] * 2
        assert await other.stats() == QueueStats()
        # Whoever goes on offers its options to the new run.
        assert (await engine.open({}, ())) == {}
        await engine.forget()
        assert await engine.stats() == QueueStats()


async def test_forgetting_a_large_run_takes_several_steps(
    engine: ScriptedEngine, op: Numbered, redis_server: RedisServer
) -> None:
    for start in range(0, 2500, 500):
        batch = range(start, start + 500)
        await add(engine, op(), *[new(str(n), lane=str(n), key=str(n)) for n in batch])
    await engine.lease(op(), 1, [b"%d" % n for n in range(10_000, 12_500)])
    await engine.forget()
    with redis_server.client() as client:
        assert client.keys() == [START + b"state"]


async def test_a_store_that_lost_the_run_says_so(
    engine: ScriptedEngine, op: Numbered, redis_server: RedisServer
) -> None:
    await add(engine, op(), new("a"))
    redis_server.flush()
    with pytest.raises(StoreLost, match="no longer holds this run"):
        await engine.lease(op(), 1)
    with pytest.raises(StoreLost):
        await engine.settle(op(), [Settlement(b"x", Move.COMPLETE)])
    await engine.open({}, ())
    assert await engine.stats() == QueueStats()


async def test_another_layout_is_refused(
    engine: ScriptedEngine, redis_url: str, redis_server: RedisServer
) -> None:
    with redis_server.client() as client:
        client.hset(START + b"state", "layout", 99)
        before = contents(client)
        with pytest.raises(ConfigurationError, match="layout 99"):
            await engine.open({"capacity": "1"}, ["capacity"])
        with pytest.raises(ConfigurationError, match="layout 99"):
            await engine.forget()
        assert contents(client) == before


async def test_bytes_that_are_no_record_are_not_taken_in(
    engine: ScriptedEngine, op: Numbered, redis_server: RedisServer
) -> None:
    with redis_server.client() as client:
        before = contents(client)
        with pytest.raises(StoreCorrupt, match="shape of a record"):
            await add(engine, op(), new("a"), NewRequest(b"b", b"not a record"))
        assert contents(client) == before


async def test_runs_do_not_touch_each_other(redis_url: str, redis_server: RedisServer) -> None:
    names = ["a", "a:", "a}", "{a", "{a}", "a%7D", "*"]
    op = Numbered()
    for name in names:
        async with opened(redis_url, namespace=name) as engine:
            await add(engine, op(), new(name, lane="l}:{", key="k"))
    async with opened(redis_url, namespace="a") as engine:
        await clear(engine, op)
        await engine.forget()
    for name in names[1:]:
        async with opened(redis_url, namespace=name) as engine:
            assert ids((await engine.lease(op(), 9)).grants) == [name]


async def test_a_cluster_holds_a_run_in_one_slot(redis_cluster: RedisCluster) -> None:
    op = Numbered()
    for name in ("one", "two", "three", "a{b}c"):
        async with opened(redis_cluster.url, namespace=name, capacity=100) as engine:
            await add(engine, op(), *[new(str(n), lane=str(n), key=str(n)) for n in range(9)])
            grants = (await engine.lease(op(), 4, [b"0", b"1", b"2", b"{3}"], [b"4"])).grants
            child = Addition([new("child", lane="{x}")], {b"c": b"1"})
            await engine.settle(op(), [complete(grants[0], addition=child), complete(grants[1])])
            await engine.settle(op(), [Settlement(grants[2].token, Move.BURY)])
            await engine.change_lanes(op(), [LaneChange(b"5", shut=1)])
            [letter] = await engine.dead(None, 1)
            assert await engine.requeue(op(), [letter.position]) == 1
            assert await engine.cancel(op(), [b"7", b"child"], forget=True) == 2
            await engine.lease(op(), 1, [b"empty"])
            await engine.wait_for_work(0, 0.05, [b"0", b"empty"])
            assert await engine.leave(ME) == Slice(1, more=False)
            assert await engine.recount() == {}
            assert sum(await clear(engine, op)) == 6
            await engine.forget()
