"""What the scripted engine must survive: replies lost, foreign keys, full memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis import Redis

from data_fetcher_core.errors import StoreCorrupt, StoreFull
from data_fetcher_core.queue.engine import (
    Addition,
    LaneChange,
    Move,
    Op,
    Outcome,
    Position,
    Settlement,
    Slice,
)
from data_fetcher_core.queue.keys import KINDS
from data_fetcher_core.queue.scripted_engine import ScriptedEngine
from data_fetcher_core.queue.scripts import load_script
from data_fetcher_core.testing.clock import ManualClock
from tests.conftest import StartRedis
from tests.scripted import FIRST_BEAT, ME, START, Numbered, add, complete, contents, new, opened
from tests.servers import RedisServer

SECOND = 1_000_000
CHILD = Addition([new("child", lane="x", key="child")], {b"c": b"1"})

# A verb as it is sent, given an operation, a lease, and the position of a dead letter.
Verb = Callable[[ScriptedEngine, Op, bytes, Position], Awaitable[Any]]
VERBS: dict[str, Verb] = {
    "add": lambda e, op, _, __: e.add(op, [Addition([new("n", key="n", lane="a")], {b"x": b"y"})]),
    "lease": lambda e, op, _, __: e.lease(op, 3),
    "lease from lanes": lambda e, op, _, __: e.lease(op, 3, [b"nowhere"]),
    "complete": lambda e, op, t, __: e.settle(op, [Settlement(t, Move.COMPLETE, result=b"r")]),
    "complete with children": lambda e, op, t, __: e.settle(
        op, [Settlement(t, Move.COMPLETE, addition=CHILD)]
    ),
    "release": lambda e, op, t, __: e.settle(op, [Settlement(t, Move.RELEASE, delay=5)]),
    "bury": lambda e, op, t, __: e.settle(op, [Settlement(t, Move.BURY, detail=b"why")]),
    "give back": lambda e, op, t, __: e.settle(op, [Settlement(t, Move.GIVE_BACK)]),
    "change_lanes": lambda e, op, _, __: e.change_lanes(op, [LaneChange(b"a", shut=9, limit=1)]),
    "requeue": lambda e, op, _, at: e.requeue(op, [at]),
    "purge": lambda e, op, _, __: e.purge(op, 0),
    "cancel": lambda e, op, _, __: e.cancel(op, [b"held", b"b", b"later"], forget=True),
    "clear": lambda e, op, _, __: e.clear(op),
}
WITHOUT_OPERATION: dict[str, Verb] = {
    "beat": lambda e, op, _, __: e.beat(op.client),
    "held": lambda e, op, _, __: e.held(op.client),
    "leave": lambda e, op, _, __: e.leave(op.client),
    "reap": lambda e, op, _, __: e.reap(op.client, FIRST_BEAT + 5),
    "peek": lambda e, _, __, ___: e.peek(9),
    "dead": lambda e, _, __, ___: e.dead(None, 9),
    "results": lambda e, _, __, ___: e.results(0, 9),
    "trim_results": lambda e, _, __, ___: e.trim_results(1),
    "checkpoints": lambda e, _, __, ___: e.checkpoints([b"c"]),
    "stats": lambda e, _, __, ___: e.stats(),
    "recount": lambda e, _, __, ___: e.recount(),
    "open": lambda e, _, __, ___: e.open({"lane_burst": "1"}, ()),
    "forget": lambda e, _, __, ___: e.forget(),
}
SETTLES = ("complete", "complete with children", "release", "bury", "give back")
FIRST_SCRIPT = {**dict.fromkeys(SETTLES, "settle"), "cancel": "cancel_mark"}
FIRST_SCRIPT["lease from lanes"] = "lease"


async def furnish(engine: ScriptedEngine) -> tuple[bytes, Position]:
    """Something everywhere: ready, delayed, leased, dead, paced, cancelled, a result, a gate."""
    op = Numbered()
    changes = [LaneChange(b"a", interval=1, burst=1), LaneChange(b"z", shut=SECOND)]
    await engine.change_lanes(op(), changes)
    lanes = {"held": "h", "buried": "h", "done": "h", "b": "a", "z": "z"}
    await add(engine, op(), *[new(name, lane=lane, key=name) for name, lane in lanes.items()])
    await add(engine, op(), new("later", delay=10 * SECOND), new("urgent", lane="a", priority=6))
    held, buried, done = (await engine.lease(op(), 3, [b"h"])).grants
    await engine.settle(
        op(), [Settlement(buried.token, Move.BURY), complete(done, result=b"result")]
    )
    [paced] = (await engine.lease(op(), 1, [b"a"])).grants
    await engine.settle(op(), [Settlement(paced.token, Move.GIVE_BACK)])
    await engine.lease(Op(b"other", 1), 1, [b"nobody"])
    await engine.cancel(op(), [b"held"], forget=False)
    [letter] = await engine.dead(None, 1)
    return held.token, letter.position


# --- operations sent again -----------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
async def test_an_operation_sent_again_changes_nothing(verb: str, each_redis: RedisServer) -> None:
    async with opened(each_redis.url, ManualClock(), capacity=9, critical_burst=1) as engine:
        token, position = await furnish(engine)
        act, again = VERBS[verb], Op(ME, 1_000)
        with each_redis.client() as client:
            untouched = contents(client)
            first = await act(engine, again, token, position)
            changed = contents(client)
            assert changed != untouched
            assert await act(engine, again, token, position) == first
            assert contents(client) == changed


async def test_a_lease_sent_again_leaves_out_what_was_settled(redis_url: str) -> None:
    async with opened(redis_url) as engine:
        op = Numbered()
        await add(engine, op(), new("a"), new("b"), new("c"))
        again = op()
        granted = await engine.lease(again, 3)
        await engine.settle(op(), [complete(granted.grants[1])])
        answered = await engine.lease(again, 3)
        assert answered.grants == [granted.grants[0], granted.grants[2]]


async def test_a_cancellation_broken_off_is_finished_when_sent_again(redis_url: str) -> None:
    async with opened(redis_url) as engine:
        await add(engine, Op(ME, 1), new("a", key="a"), new("b", key="b", delay=SECOND))
        again, operate = Op(ME, 2), engine._operate

        async def break_off(verb: str, *rest: Any, **named: Any) -> Any:
            if verb == "cancel_delayed":
                raise StoreFull("broken off")
            return await operate(verb, *rest, **named)

        engine._operate = break_off  # type: ignore[method-assign]
        with pytest.raises(StoreFull):
            await engine.cancel(again, [b"a", b"b"], forget=True)
        engine._operate = operate  # type: ignore[method-assign]
        assert await engine.cancel(again, [b"a", b"b"], forget=True) == 2
        [admitted] = await engine.add(Op(ME, 3), [Addition([new("a", key="a"), new("b", key="b")])])
        assert [a.id for a in admitted if a.admission == 1] == [b"a", b"b"]


async def test_two_cancellations_do_not_hide_requests_from_each_other(redis_url: str) -> None:
    """While one walks, another removes what the first has passed: nothing may slip by."""
    async with opened(redis_url) as engine, opened(redis_url) as other:
        op = Numbered()
        for start in range(0, 3000, 1000):
            await add(engine, op(), *[new(str(n)) for n in range(start, start + 1000)])
        walk = engine._operate
        interfered: list[str] = []

        async def interfere(verb: str, *rest: Any, **named: Any) -> Any:
            reply = await walk(verb, *rest, **named)
            if verb == "cancel_ready" and not interfered:
                interfered.append(verb)
                near_the_tail = [str(n).encode() for n in range(2500, 2900)]
                assert await other.cancel(Op(b"other", 1), near_the_tail, forget=False) == 400
            return reply

        engine._operate = interfere  # type: ignore[method-assign]
        early = [str(n).encode() for n in range(2000)]
        assert await engine.cancel(op(), early, forget=False) == 2000
        assert (await engine.stats()).ready == 600


# --- keys of others ------------------------------------------------------------------------------


def key_of(name: str) -> bytes:
    return START + {"leased": b"leased:" + ME}.get(name, name.encode())


@pytest.mark.parametrize("name", [name for name in KINDS if name != "nothing"])
async def test_a_foreign_value_under_a_key_of_ours_stops_who_needs_it(
    name: str, each_redis: RedisServer
) -> None:
    async with opened(each_redis.url, ManualClock(), capacity=99, critical_burst=1) as engine:
        token, position = await furnish(engine)
        number = 1_000
        with each_redis.client() as client:
            client.set(key_of(name), "foreign")
            before = contents(client)
            for verb, act in {**VERBS, **WITHOUT_OPERATION}.items():
                number += 1
                if name not in load_script(FIRST_SCRIPT.get(verb, verb)).keys:
                    continue
                with pytest.raises(StoreCorrupt, match="WRONGTYPE"):
                    await act(engine, Op(ME, number), token, position)
                assert contents(client) == before, verb


@pytest.mark.parametrize(
    ("key", "verb"),
    [
        *((b"ready:3:a", verb) for verb in ("add", "lease", "peek", "recount", "clear")),
        *((b"ready:3:h", verb) for verb in ("give back", "requeue", "leave", "reap")),
        (b"ready:3:x", "complete with children"),
        (b"wake:a", "add"),
        (b"wake:nowhere", "add nowhere"),
    ],
)
async def test_a_foreign_value_where_lists_of_lanes_are(
    key: bytes, verb: str, each_redis: RedisServer
) -> None:
    clock = ManualClock()
    async with opened(each_redis.url, clock) as engine:
        token, position = await furnish(engine)
        clock.advance(0.5)
        acts = {**VERBS, **WITHOUT_OPERATION}
        acts["add nowhere"] = lambda e, op, _, __: add(e, op, new("n", lane="nowhere"))
        with each_redis.client() as client:
            client.delete(START + b"cancelled")
            client.sadd(START + b"watched", "a", "nowhere")
            client.set(START + key, "foreign")
            before = contents(client)
            with pytest.raises(StoreCorrupt):
                await acts[verb](engine, Op(ME, 1_000), token, position)
            assert contents(client) == before


async def test_a_foreign_value_where_seen_keys_are(each_redis: RedisServer) -> None:
    async with opened(each_redis.url, expected_keys=1) as engine:
        with each_redis.client() as client:
            client.set(START + b"seen:0", "foreign")
            before = contents(client)
            with pytest.raises(StoreCorrupt):
                await add(engine, Op(ME, 1), new("x"), new("a", key="k"))
            assert contents(client) == before


# --- memory --------------------------------------------------------------------------------------


def used_memory(client: Redis) -> int:
    return int(client.info("memory")["used_memory"])


async def test_out_of_memory_only_new_requests_are_refused(
    each_redis: RedisServer, start_redis: StartRedis
) -> None:
    server, op = start_redis(each_redis.binary), Numbered()
    clock = ManualClock()
    async with opened(server.url, clock, lane_burst=1) as engine:
        with server.client() as client:
            await add(engine, op(), *[new(str(n), lane=str(n % 5)) for n in range(500)])
            await add(engine, op(), new("later", delay=SECOND))
            parent, *others = (await engine.lease(op(), 100)).grants
            await engine.lease(Op(b"dead", 1), 50)
            client.config_set("maxmemory", 1)
            before = await engine.stats()

            with pytest.raises(StoreFull):
                await add(engine, op(), new("new"))
            settled = await engine.settle(
                op(),
                [
                    complete(others[0], result=b"r"),
                    complete(parent, addition=CHILD),
                    complete(others[1], addition=Addition(checkpoint={b"c": b"2"})),
                    *(Settlement(g.token, Move.GIVE_BACK) for g in others[2:10]),
                    Settlement(others[10].token, Move.BURY, detail=b"why"),
                    Settlement(others[11].token, Move.RELEASE, delay=SECOND),
                ],
            )
            outcomes = [one.outcome for one in settled]
            assert outcomes == [Outcome.DONE, Outcome.FULL, *[Outcome.DONE] * 11]
            assert parent.token in await engine.held(ME)
            assert await engine.checkpoints([b"c"]) == [b"2"]

            clock.advance(2.0)
            assert len((await engine.lease(op(), 100)).grants) == 100
            beats = (await engine.beat(ME)).consumers
            assert await engine.reap(b"dead", beats[b"dead"]) == Slice(50, more=False)
            await engine.change_lanes(op(), [LaneChange(b"1", shut=SECOND, limit=3)])
            assert await engine.cancel(op(), [b"499"], forget=True) == 1
            assert await engine.purge(op(), 0) == Slice(1, more=False)
            assert await engine.recount() == {}
            await engine.open({"lane_burst": "1"}, ())

            client.config_set("maxmemory", 0)
            await add(engine, op(), new("new"))
            [again] = await engine.settle(op(), [complete(parent, addition=CHILD)])
            assert again.outcome is Outcome.DONE
            client.config_set("maxmemory", 1)
            assert await engine.leave(ME) == Slice(187, more=False)
            await engine.clear(op())
            stats = await engine.stats()
            assert (before.unaccounted, stats.unaccounted, stats.size) == (0, 0, 0)
