"""Bad records in Redis become dead letters and block nobody."""

from __future__ import annotations

import pytest

from data_fetcher_core.core import QueueStats
from data_fetcher_core.queue.engine import Dead, Move, Outcome, Reason, Settlement
from data_fetcher_core.queue.records import HEADER, Record, decode
from data_fetcher_core.queue.scripted_engine import ScriptedEngine
from data_fetcher_core.testing.clock import ManualClock
from tests.scripted import ME, START, Numbered, add, complete, ids, new, opened
from tests.servers import RedisServer

SECOND = 1_000_000

RECORD = Record(id=b"id", lane=b"l", key=b"key", priority=3, body=b"body").encode()
DAMAGES = {
    "empty": b"",
    "one byte": b"\1",
    "cut short": RECORD[:-1],
    "only a header": RECORD[: HEADER.size],
    "too long": RECORD + b"x",
    "version": b"\7" + RECORD[1:],
    "priority 0": RECORD[:2] + b"\0" + RECORD[3:],
    "priority 7": RECORD[:2] + b"\7" + RECORD[3:],
    "id length": RECORD[:3] + b"\xff" + RECORD[4:],
    "lane length": RECORD[:24] + b"\xff\xff" + RECORD[26:],
    "key length": RECORD[:26] + b"\xff\xff" + RECORD[28:],
    "history length": RECORD[:28] + b"\xff\xff\xff\xff" + RECORD[32:],
    "body length": RECORD[:32] + b"\xff\xff\xff\xff" + RECORD[36:],
    "garbage": bytes(range(256)),
}


async def corrupt_letters(engine: ScriptedEngine) -> list[Dead]:
    letters = await engine.dead(None, 1000)
    assert {letter.reason for letter in letters} <= {Reason.CORRUPT}
    assert {letter.detail for letter in letters} <= {b"unreadable"}
    return letters


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", ["ready", "delayed", "leave", "reap", "release", "complete"])
async def test_a_bad_record_becomes_a_dead_letter_and_blocks_nobody(
    place: str, damage: str, redis_url: str, redis_server: RedisServer
) -> None:
    bad, op, clock = DAMAGES[damage], Numbered(), ManualClock()
    async with opened(redis_url, clock) as engine:
        with redis_server.client() as client:
            delay = SECOND if place == "delayed" else 0
            await add(engine, op(), new("bad", lane="l", delay=delay), new("good", lane="l"))
            if place == "ready":
                client.lset(START + b"ready:3:l", 0, bad)
            elif place == "delayed":
                [(member, due)] = client.zrange(START + b"delayed", 0, -1, withscores=True)
                client.zrem(START + b"delayed", member)
                client.zadd(START + b"delayed", {member[:8] + bad: due})
                clock.advance(2.0)
            else:
                [grant] = (await engine.lease(op(), 1)).grants
                client.hset(START + b"leased:" + ME, grant.token, b"\0\1l" + bad)
                beat = (await engine.beat(ME)).consumers[ME]
                await act_on(engine, op, place, grant.token, beat)
            granted = await engine.lease(op(), 5)
            assert ids(granted.grants) == ["good"]
            assert decode(granted.grants[0].record).lane == b"l"
            letters = await corrupt_letters(engine)
            assert [x.record for x in letters] == ([] if place == "complete" else [bad])
            assert await engine.recount() == {}
            assert (await engine.stats()).unaccounted == 0
            assert await engine.requeue(op(), [x.position for x in letters]) == 0


async def test_more_bad_records_than_a_step_holds(
    redis_url: str, redis_server: RedisServer
) -> None:
    op = Numbered()
    async with opened(redis_url) as engine:
        await add(engine, op(), new("first", lane="l"), new("last", lane="l", priority=1))
        with redis_server.client() as client:
            client.rpush(START + b"ready:3:l", *[b"bad"] * 2500)
            client.hincrby(START + b"stats", "ready", 2500)
        found = []
        for _ in range(4):
            granted = await engine.lease(op(), 5)
            found.append((ids(granted.grants), granted.wait))
        assert found == [(["first"], 0), ([], 0), (["last"], None), ([], None)]
        assert len(await corrupt_letters(engine)) == 1000
        assert (await engine.stats()).dead == 2500
        assert await engine.recount() == {}


async def act_on(engine: ScriptedEngine, op: Numbered, place: str, token: bytes, beat: int) -> None:
    if place == "leave":
        await engine.leave(ME)
    elif place == "reap":
        await engine.reap(ME, beat)
    else:
        head = Record(id=b"bad", lane=b"l", key=b"", priority=3, body=b"body of bad").head()
        move = Move.RELEASE if place == "release" else Move.COMPLETE
        [settled] = await engine.settle(op(), [Settlement(token, move, head=head)])
        assert settled.outcome is Outcome.DONE


async def test_the_client_may_bury_what_it_cannot_read(
    redis_url: str, redis_server: RedisServer
) -> None:
    """A flipped bit passes the store, which has no checksum; whoever leased it says so."""
    op = Numbered()
    async with opened(redis_url) as engine:
        await add(engine, op(), new("a"))
        [grant] = (await engine.lease(op(), 1)).grants
        bury = Settlement(grant.token, Move.BURY, reason=Reason.CORRUPT, detail=b"checksum")
        await engine.settle(op(), [bury])
        [letter] = await engine.dead(None, 1)
        assert (letter.reason, letter.detail, letter.record) == (
            Reason.CORRUPT,
            b"checksum",
            grant.record,
        )


async def test_flipping_any_bit_of_what_is_stored_loses_no_other_request(
    redis_url: str, redis_server: RedisServer
) -> None:
    op = Numbered()
    async with opened(redis_url) as engine:
        with redis_server.client() as client:
            for bit in range(8 * len(RECORD)):
                await add(engine, op(), new("bad", lane="l"), new("good", lane="l"))
                raw = bytearray(client.lindex(START + b"ready:3:l", 0) or b"")
                raw[bit // 8] ^= 1 << bit % 8
                client.lset(START + b"ready:3:l", 0, bytes(raw))
                last = b""
                while grants := (await engine.lease(op(), 5)).grants:
                    last = grants[-1].record
                    await engine.settle(op(), [complete(grant) for grant in grants])
                assert decode(last).id == b"good"
            stats = await engine.stats()
            assert stats.unaccounted == 0
            assert stats == QueueStats(
                dead=stats.dead,
                enqueued=16 * len(RECORD),
                completed=16 * len(RECORD) - stats.dead,
                buried=stats.dead,
            )
            assert await engine.recount() == {}


@pytest.mark.parametrize("letter", [b"", b"\0" * 8, b"\0" * 7 + b"\5\x63\0\0rest"])
async def test_a_damaged_letter_does_not_hide_the_others(
    letter: bytes, redis_url: str, redis_server: RedisServer
) -> None:
    op = Numbered()
    async with opened(redis_url) as engine:
        await add(engine, op(), new("a", expires_in=1))
        await engine.lease(op(), 1)
        with redis_server.client() as client:
            client.zadd(START + b"dead", {letter: 7})
        damaged, whole = await engine.dead(None, 5)
        assert (damaged.position.at, damaged.reason, damaged.record) == (7, Reason.CORRUPT, letter)
        assert decode(whole.record).id == b"a"
        assert await engine.requeue(op(), [damaged.position, whole.position]) == 1
