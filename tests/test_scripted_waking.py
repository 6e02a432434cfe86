"""Who waits on Redis is woken by what concerns it, once, and by nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from redis import Redis

from data_fetcher_core.queue.engine import Addition, Admission, LaneChange, Move, Op, Settlement
from data_fetcher_core.queue.scripted_engine import ScriptedEngine
from data_fetcher_core.testing.clock import ManualClock
from tests.scripted import FIRST_BEAT, ME, START, Numbered, add, complete, ids, new, opened
from tests.servers import RedisServer
from tests.waiting import until

SECOND = 1_000_000
PATIENCE = 10.0
WAKE, ROOM = START + b"wake", START + b"room"


@pytest.fixture
def op() -> Numbered:
    return Numbered()


@pytest.fixture
async def engine(redis_url: str, clock: ManualClock) -> AsyncIterator[ScriptedEngine]:
    async with opened(redis_url, clock, capacity=4) as engine:
        yield engine


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Redis]:
    with redis_server.client() as client:
        yield client


def blocked(client: Redis) -> int:
    return int(client.info("clients")["blocked_clients"])


async def is_woken(client: Redis, wait: Awaitable[None], act: Awaitable[object]) -> None:
    """Start to wait, act once the wait blocks, and see the wait end."""
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(_finish(wait))
        await until(lambda: blocked(client) == 1)
        await act
        await waiting


async def _finish(wait: Awaitable[None]) -> None:
    await wait


Step = Callable[[ScriptedEngine, bytes], Awaitable[object]]
STEPS: dict[str, Step] = {
    "add": lambda e, _: add(e, Op(ME, 100), new("more")),
    "release": lambda e, t: e.settle(Op(ME, 100), [Settlement(t, Move.RELEASE)]),
    "give back": lambda e, t: e.settle(Op(ME, 100), [Settlement(t, Move.GIVE_BACK)]),
    "a child": lambda e, t: e.settle(
        Op(ME, 100), [Settlement(t, Move.COMPLETE, addition=Addition([new("child")]))]
    ),
    "the limit": lambda e, t: e.settle(Op(ME, 100), [Settlement(t, Move.COMPLETE)]),
    "leave": lambda e, _: e.leave(ME),
    "reap": lambda e, _: e.reap(ME, FIRST_BEAT + 2),
    "reopen": lambda e, _: e.change_lanes(Op(ME, 100), [LaneChange(b"shut", reopen=True)]),
    "promotion": lambda e, _: e.lease(Op(ME, 100), 1, [b"nowhere"]),
}


@pytest.mark.parametrize("step", STEPS)
async def test_what_makes_something_leasable_wakes(
    step: str, engine: ScriptedEngine, clock: ManualClock, op: Numbered, client: Redis
) -> None:
    await engine.change_lanes(
        op(), [LaneChange(b"l", limit=1), LaneChange(b"shut", shut=9 * SECOND)]
    )
    await add(engine, op(), new("a", lane="l"), new("b", lane="l"), new("c", lane="shut"))
    [grant] = (await engine.lease(op(), 5)).grants
    assert (await engine.lease(op(), 5)).grants == []
    assert client.llen(WAKE) == 0
    if step == "promotion":
        clock.advance(20.0)
    await is_woken(client, engine.wait_for_work(0, PATIENCE), STEPS[step](engine, grant.token))
    assert (await engine.lease(Op(b"other", 1), 1)).grants


async def test_dead_letters_made_ready_wake(
    engine: ScriptedEngine, op: Numbered, client: Redis
) -> None:
    await add(engine, op(), new("a"))
    [grant] = (await engine.lease(op(), 1)).grants
    await engine.settle(op(), [Settlement(grant.token, Move.BURY)])
    [letter] = await engine.dead(None, 1)
    client.delete(WAKE)
    await is_woken(
        client, engine.wait_for_work(0, PATIENCE), engine.requeue(op(), [letter.position])
    )


async def test_there_is_one_marker_and_who_takes_it_passes_it_on(
    engine: ScriptedEngine, op: Numbered, client: Redis
) -> None:
    await add(engine, op(), new("a"), new("b"))
    await add(engine, op(), new("c"))
    assert client.llen(WAKE) == 1
    await engine.wait_for_work(0, PATIENCE)
    assert client.llen(WAKE) == 0
    await engine.lease(op(), 1)
    assert client.llen(WAKE) == 1
    await engine.lease(op(), 5)
    assert client.llen(WAKE) == 0


async def test_a_lease_of_nothing_passes_the_marker_on(
    engine: ScriptedEngine, op: Numbered, client: Redis
) -> None:
    await add(engine, op(), new("a"))
    await engine.wait_for_work(0, PATIENCE)
    await engine.lease(op(), 0)
    assert client.llen(WAKE) == 1


async def test_a_marker_left_behind_is_taken_once(
    engine: ScriptedEngine, op: Numbered, client: Redis
) -> None:
    client.rpush(WAKE, "1")
    await engine.wait_for_work(0, PATIENCE)
    for _ in range(3):
        await engine.lease(op(), 5)
        assert client.llen(WAKE) == 0


async def test_who_finds_nothing_it_may_take_does_not_wake_itself(
    redis_url: str, clock: ManualClock, op: Numbered, client: Redis
) -> None:
    async with opened(redis_url, clock, max_deaths=1) as engine:
        await add(engine, op(), new("a", lane="a"), new("b", lane="b"))
        assert len((await engine.lease(op(), 5)).grants) == 1
        await engine.wait_for_work(0, PATIENCE)
        granted = await engine.lease(op(), 5)
        assert (granted.grants, granted.wait) == ([], None)
        assert client.llen(WAKE) == 0


async def test_the_end_and_a_sooner_delay_wake_those_who_wait(
    engine: ScriptedEngine, op: Numbered, client: Redis
) -> None:
    await engine.lease(op(), 1, [b"l"])
    await add(engine, op(), new("a"))
    [grant] = (await engine.lease(op(), 1)).grants
    assert client.llen(WAKE) == 0
    await add(engine, op(), new("b", lane="l", delay=9 * SECOND))
    await engine.wait_for_work(0, PATIENCE)
    await engine.wait_for_work(0, PATIENCE, [b"l"])
    await add(engine, op(), new("c", lane="l", delay=10 * SECOND))
    assert client.llen(WAKE) == 0
    await engine.cancel(op(), [b"b", b"c"], forget=False)
    await engine.settle(op(), [complete(grant)])
    await engine.wait_for_work(0, PATIENCE)
    granted = await engine.lease(op(), 1)
    assert (granted.drained, client.llen(WAKE)) == (True, 0)


async def test_waiting_ends_when_its_time_is_over(engine: ScriptedEngine, client: Redis) -> None:
    client.config_resetstat()
    await engine.wait_for_work(0, 0.05)
    await engine.wait_for_work(0, 0.05, [b"lane"])
    await engine.wait_for_room(0, 0.05)
    await engine.wait_for_work(0, 0.0)
    calls = client.info("commandstats")["cmdstat_blpop"]["calls"]
    assert calls == 3


# --- waiting for lanes -------------------------------------------------------------------------


async def test_a_watched_lane_wakes_its_watcher_and_others_do_not(
    engine: ScriptedEngine, op: Numbered, client: Redis
) -> None:
    await engine.lease(op(), 1, [b"mine"], [b"steal"])
    await add(engine, op(), new("x", lane="other"))
    assert (client.llen(START + b"wake:mine"), client.llen(WAKE)) == (0, 1)
    act = add(engine, op(), new("a", lane="mine"))
    await is_woken(client, engine.wait_for_work(0, PATIENCE, [b"mine", b"steal"]), act)
    assert client.llen(WAKE) == 1


async def test_watchers_of_one_lane_wake_each_other(
    engine: ScriptedEngine, op: Numbered, client: Redis
) -> None:
    marker = START + b"wake:l"
    await engine.lease(op(), 1, [b"l"])
    await add(engine, op(), new("a", lane="l"), new("b", lane="l"))
    assert client.llen(marker) == 1
    await engine.wait_for_work(0, PATIENCE, [b"l"])
    await engine.lease(op(), 1, [b"l"])
    assert client.llen(marker) == 1
    await engine.wait_for_work(0, PATIENCE, [b"l"])
    await engine.lease(op(), 1, [b"l"])
    assert client.llen(marker) == 0


async def test_a_gate_that_opens_wakes_the_watcher_when_somebody_looks(
    engine: ScriptedEngine, clock: ManualClock, op: Numbered, client: Redis
) -> None:
    await engine.change_lanes(op(), [LaneChange(b"l", shut=SECOND)])
    await add(engine, op(), new("a", lane="l"))
    granted = await engine.lease(op(), 1, [b"l"])
    assert (granted.grants, granted.wait) == ([], SECOND)
    clock.advance(1.0)
    await engine.lease(Op(b"other", 1), 1, [b"nowhere"])
    await engine.wait_for_work(0, PATIENCE, [b"l"])
    assert ids((await engine.lease(op(), 1, [b"l"])).grants) == ["a"]


# --- waiting for room --------------------------------------------------------------------------


async def fill(engine: ScriptedEngine, op: Numbered, count: int) -> list[Admission]:
    requests = [new(f"{op.number}-{n}") for n in range(count)]
    [admitted] = await engine.add(op(), [Addition(requests)])
    return [a.admission for a in admitted]


async def test_room_wakes_one_who_waits_for_it_after_the_other(
    engine: ScriptedEngine, op: Numbered, client: Redis
) -> None:
    assert await fill(engine, op, 5) == [Admission.NEW] * 4 + [Admission.FULL]
    assert client.llen(ROOM) == 0
    lease = engine.lease(op(), 2)
    await is_woken(client, engine.wait_for_room(0, PATIENCE), lease)
    assert await fill(engine, op, 1) == [Admission.NEW]
    # There is room for one more: the next who waits finds the marker.
    await engine.wait_for_room(0, PATIENCE)
    assert await fill(engine, op, 1) == [Admission.NEW]
    assert client.llen(ROOM) == 0
    assert await fill(engine, op, 1) == [Admission.FULL]


@pytest.mark.parametrize("verb", ["clear", "cancel", "expiry"])
async def test_whatever_takes_requests_away_makes_room(
    verb: str, engine: ScriptedEngine, clock: ManualClock, op: Numbered, client: Redis
) -> None:
    requests = [new("a", expires_in=5), new("b", expires_in=5), new("c", delay=SECOND), new("d")]
    await add(engine, op(), *requests, new("e"))
    assert client.llen(ROOM) == 0
    if verb == "clear":
        await engine.clear(op())
    elif verb == "cancel":
        await engine.cancel(op(), [b"a", b"c"], forget=False)
    else:
        clock.advance(1.0)
        await engine.lease(op(), 1)
    assert client.llen(ROOM) == 1


async def test_completing_makes_no_room(
    engine: ScriptedEngine, op: Numbered, client: Redis
) -> None:
    await fill(engine, op, 5)
    [grant] = (await engine.lease(op(), 1)).grants
    await engine.wait_for_room(0, PATIENCE)
    await fill(engine, op, 1)
    assert client.llen(ROOM) == 0
    await engine.settle(op(), [complete(grant)])
    assert client.llen(ROOM) == 0
