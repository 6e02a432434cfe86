"""A Redis in which somebody else has written over what is ours: keys, fields, records."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from data_fetcher_core.core import Entry, Priority
from data_fetcher_core.errors import LeaseLost, StoreCorrupt, StoreLost
from data_fetcher_core.queue import KVStoreQueue, Lease
from data_fetcher_core.queue.keys import KINDS
from data_fetcher_core.queue.lease import LeaseState
from data_fetcher_core.testing import ManualClock
from tests.evidence import Evidence
from tests.fault_support import Picture, bounded, open_run
from tests.harness import accounted, client_of, letters, settled
from tests.servers import RedisServer

__all__ = ["bounded"]

# --- a key of ours that holds something else -----------------------------------------------------

# Families of keys by lane, priority, client or bucket, and one more that no step reads.
FAMILIES = ("ready:", "leased:", "seen:", "wake:")
NAMES = (*(name for name in KINDS if name not in {"leased", "nothing"}), *FAMILIES)
Verb = Callable[[KVStoreQueue, list[Lease]], Awaitable[Any]]


async def _leave(queue: KVStoreQueue, _: list[Lease]) -> None:
    client = await client_of(queue)
    await client.engine.leave(client.name)


async def _beat(queue: KVStoreQueue, _: list[Lease]) -> None:
    """Only the step: a sweep is several, and the first stands where the next is refused."""
    client = await client_of(queue)
    await client.engine.beat(client.name)


VERBS: dict[str, Verb] = {
    "enqueue": lambda queue, _: queue.enqueue(_keyed(), checkpoint={"cursor": 2}),
    "enqueue for later": lambda queue, _: queue.enqueue(["later"], delay=9.0),
    "lease": lambda queue, _: queue.lease(100),
    "lease of lanes": lambda queue, _: queue.lease(100, lanes=["plain", "paced"]),
    "enqueue for who waits": lambda queue, _: queue.enqueue(["seen"], lane="watched"),
    "complete": lambda _, held: held[0].complete(_keyed(), {"cursor": 3}, "result"),
    "release": lambda _, held: held[0].release(),
    "release for later": lambda _, held: held[0].release(delay=9.0),
    "bury": lambda _, held: held[0].bury(),
    "give back": lambda _, held: held[0].give_back(),
    "give back what is cancelled": lambda _, held: held[1].give_back(),
    "beat": _beat,
    "leave": _leave,
    "requeue": lambda queue, _: queue.requeue(),
    "purge": lambda queue, _: queue.purge_dead(),
    "dead letters": lambda queue, _: letters(queue),
    "shut": lambda queue, _: queue.shut("plain", 9.0),
    "pace": lambda queue, _: queue.pace("paced", interval=1.0),
    "clear": lambda queue, _: queue.clear(),
    "checkpoint": lambda queue, _: queue.checkpoint("cursor"),
    "results": lambda queue, _: queue.results(),
    "trim results": lambda queue, _: queue.trim_results(1),
    "stats": lambda queue, _: queue.stats(),
    "peek": lambda queue, _: queue.peek(100),
    "recount": lambda queue, _: queue.recount(),
}


def _keyed() -> list[Entry]:
    return [Entry(f"plain{n}", id=f"plain{n}", lane="plain", key=f"key{n}") for n in range(3)]


async def _populate(queue: KVStoreQueue) -> list[Lease]:
    """Something under every key there is; two leases, the second of them cancelled."""
    await queue.pace("paced", interval=50.0, burst=2)
    await queue.lease(lanes=["watched"])
    urgent = [Entry("urgent", lane="critical", priority=Priority.CRITICAL) for _ in range(2)]
    await queue.enqueue(urgent)
    await queue.enqueue([Entry(name) for name in ("dead", "done")], checkpoint={"cursor": 1})
    for lease in await queue.lease(3, lanes=[""]):
        await (lease.bury() if lease.item == "dead" else lease.complete(result="done"))
    held = await queue.lease(lanes=["critical"])
    await queue.enqueue([Entry(f"paced{n}", lane="paced") for n in range(5)])
    for _ in range(3):
        held += await queue.lease(lanes=["paced"])
    await queue.enqueue(_keyed())
    await queue.enqueue([Entry("watched", lane="watched")])
    await queue.enqueue([Entry("delayed", id="delayed")], delay=100.0)
    await queue.cancel([held[1].id])
    return held


@pytest.mark.parametrize("name", NAMES)
async def test_a_foreign_key_is_told_and_nothing_is_half_written(
    redis_server: RedisServer, redis_url: str, name: str, shows: Evidence
) -> None:
    told, changed = await _write_over(redis_server, name)
    shows("F36", f"{name} written over: verbs that told StoreCorrupt", told, at_least=1)
    shows("F36", f"{name} written over: keys written to by these", changed, exactly=0)


@pytest.mark.slow
async def test_a_foreign_key_is_told_by_every_version(each_redis: RedisServer) -> None:
    for name in NAMES:
        each_redis.flush()
        _, changed = await _write_over(each_redis, name)
        assert changed == 0, name


async def _write_over(server: RedisServer, name: str) -> tuple[int, int]:
    """How many verbs told of it, and how many keys they wrote to all the same."""
    async with open_run(server.url, clock=ManualClock(), capacity=500, critical_burst=9) as queue:
        held = await _populate(queue)
        whole = Picture(server)
        ours = [key for key in whole.keys if _is(key.partition(b"}:")[2], name)]
        assert ours, f"there is nothing under {name}: {whole.keys}"
        with server.client() as client:
            for key in ours:
                client.set(key, "somebody else's")
        foreign = Picture(server)
        half: list[bytes] = []
        told = {
            verb for verb in VERBS if await _tells(server, foreign, queue, held, verb, half=half)
        }
        assert told, f"nobody noticed what was written over {name}"
        whole.restore(server)
        await accounted(queue)
        return len(told), len(half)


async def _tells(
    server: RedisServer,
    before: Picture,
    queue: KVStoreQueue,
    held: list[Lease],
    verb: str,
    *,
    half: list[bytes],
) -> bool:
    """Whether the verb was refused; what it has changed then goes to ``half``."""
    for lease in held:
        lease.state = LeaseState.HELD
    try:
        await VERBS[verb](queue, held)
    except (StoreCorrupt, StoreLost):
        await settled(queue)
        half += before.changed(server)
        told = True
    except LeaseLost:
        told = False
    else:
        told = False
    await settled(queue)
    before.restore(server)
    return told


@pytest.mark.parametrize("name", FAMILIES)
async def test_a_foreign_key_stops_a_cancellation_between_two_steps(
    each_redis: RedisServer, clock: ManualClock, name: str
) -> None:
    """It is the one verb of several steps: those before the foreign key have been done."""
    async with open_run(each_redis.url, clock=clock) as queue:
        held = await _populate(queue)
        whole = Picture(each_redis)
        ours = [key for key in whole.keys if _is(key.partition(b"}:")[2], name)]
        with each_redis.client() as client:
            for key in ours:
                client.set(key, "somebody else's")
        with suppress(StoreCorrupt):
            await queue.cancel(["plain0", "delayed", held[0].id], forget=True)
        whole.restore(each_redis, ours)
        await accounted(queue)
        await queue.cancel(["plain0", "delayed", held[0].id], forget=True)
        assert (await accounted(queue)).cancelled == 2


def _is(key: bytes, name: str) -> bool:
    return key.startswith(name.encode()) if name.endswith(":") else key == name.encode()


# --- a field of ours that holds nonsense ---------------------------------------------------------

HASHES = tuple(name for name, kind in KINDS.items() if kind == "hash" and name != "leased")
NONSENSE = (b"", b"nonsense", b"\xff" * 40)
# These take several steps, and those before the nonsense have been done.
IN_STEPS = ("sweep", "clear")


# What every step reads or adds to; the others take as long again.
COMMON = ("stats", "consumers")


@pytest.mark.parametrize(
    "name", [*COMMON, *(pytest.param(n, marks=pytest.mark.slow) for n in HASHES if n not in COMMON)]
)
async def test_nonsense_in_a_field_is_told_and_nothing_is_half_written(
    redis_server: RedisServer, redis_url: str, clock: ManualClock, name: str
) -> None:
    async with open_run(redis_url, clock=clock, capacity=500, critical_burst=9) as queue:
        held = await _populate(queue)
        whole = Picture(redis_server)
        try:
            (key,) = [key for key in whole.keys if _is(key.partition(b"}:")[2], name)]
            for field, nonsense in itertools.product(whole.contents[key], NONSENSE):
                with redis_server.client() as client:
                    client.hset(key, field, nonsense)
                foreign = Picture(redis_server)
                for verb in VERBS:
                    half: list[bytes] = []
                    await _tells(redis_server, foreign, queue, held, verb, half=half)
                    assert not half or verb in IN_STEPS, verb
                whole.restore(redis_server)
        finally:
            whole.restore(redis_server)
        await accounted(queue)


async def test_a_result_that_is_no_json_is_told(redis_server: RedisServer, redis_url: str) -> None:
    async with open_run(redis_url) as queue:
        await _populate(queue)
        with redis_server.client() as client:
            (key,) = client.keys("*}:results")
            client.lset(key, 0, "nonsense")
        with pytest.raises(StoreCorrupt):
            await queue.results()


async def test_who_waits_at_a_foreign_key_is_told(
    redis_server: RedisServer, redis_url: str
) -> None:
    async with open_run(redis_url) as queue:
        with redis_server.client() as client:
            client.set("{fetch:faults}:wake:lane", "somebody else's")
            with pytest.raises(StoreCorrupt):
                await queue.lease(wait=30.0, lanes=["lane"])
            client.delete("{fetch:faults}:wake:lane")
        await queue.enqueue(["now"], lane="lane")
        assert len(await queue.lease(wait=30.0, lanes=["lane"])) == 1
