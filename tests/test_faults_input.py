"""Names that break keys elsewhere, and one key brought by many at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from data_fetcher_core.core import Entry, Priority
from data_fetcher_core.errors import ConfigurationError, ValidationError
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.kv_store.redis import RedisStore
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.kv_store.transactional import TransactionalStore
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.testing.texts import AWKWARD_TEXTS
from tests.conftest import MakeQueue
from tests.evidence import Evidence
from tests.fault_support import Picture, bounded, open_run
from tests.harness import accounted, crash, everything, letters
from tests.servers import RedisCluster, RedisServer
from tests.sqlite_support import child

__all__ = ["bounded"]

# Besides those: names that are the beginning of another, or look like what we put around them. The
# second, with no more than braces around it, would own the list of a lane of the first.
NAMES = (*AWKWARD_TEXTS, "run", "run}:ready:3:lane", "run:", "fetch:run", "0", "\x01", "\uffff")
TREACHEROUS_LANE = "lane}:state"
Contents = dict[bytes, Any]
Look = Callable[[], Awaitable[Contents]]


@pytest.fixture
async def place(
    store_kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[KeyValueStore, Look]]:
    """A store, and a way to see all that is in it."""
    store: KeyValueStore
    if store_kind == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.flush()
        store = RedisStore(server.url)

        async def look() -> Contents:
            return Picture(server, to_restore=False).contents
    else:
        ordered: TransactionalStore = (
            MemoryStore()
            if store_kind == "memory"
            else SQLiteStore(tmp_path / "run.db", synchronous="NORMAL")
        )
        store = ordered

        async def look() -> Contents:
            return await everything(ordered)

    yield store, look
    await store.close()


# --- runs do not touch each other ----------------------------------------------------------------


async def _fill(queue: KVStoreQueue) -> None:
    """Something in every place of a run; what is held stays held."""
    await queue.enqueue([Entry(n, lane=f"{n % 2}", key=f"{n}") for n in range(6)])
    await queue.enqueue(["ready"], lane=TREACHEROUS_LANE)
    await queue.enqueue(["late"], delay=1_000.0, checkpoint={"cursor": 1})
    one, two, _ = await queue.lease(3, lanes=["0", "1"])
    await one.bury()
    await two.complete(result="done")
    await queue.pace("1", interval=1_000.0)
    await crash(queue)


async def _do_everything(queue: KVStoreQueue) -> None:
    await queue.enqueue([Entry("new", priority=Priority.CRITICAL), *map(str, range(5))], lane="9")
    done, again, bad, back = await queue.lease(4)
    await done.complete(["child"], {"cursor": 2}, "result")
    await again.release(delay=1.0)
    await bad.bury()
    await back.give_back()
    await queue.cancel([back.id], forget=True)
    await queue.shut("1", 1.0)
    await queue.requeue()
    await queue.purge_dead()
    await queue.sweep()
    await queue.recount()
    await queue.trim_results(1)
    await queue.clear()
    await queue.close()
    await queue.forget()


async def test_no_run_reaches_another(place: tuple[KeyValueStore, Look], shows: Evidence) -> None:
    store, look = place
    await store.put("key", "value", prefix="fetch:run")
    owned: dict[str, Contents] = {"of the store itself": await look()}
    for name in NAMES:
        before = await look()
        await _fill(open_run(store, name))
        after = await look()
        assert all(after[key] == value for key, value in before.items()), name
        owned[name] = {key: value for key, value in after.items() if key not in before}
    compared, changed = 0, set()
    for name in NAMES:
        async with open_run(store, name) as queue:
            await _do_everything(queue)
        del owned[name]
        now = await look()
        for other, contents in owned.items():
            changed |= {(name, other) for key in contents if now.get(key) != contents[key]}
            compared += len(contents)
    shows("F59", "runs with awkward names beside each other", len(NAMES), at_least=25)
    shows("F59", "keys of others compared after all was done to one", compared, at_least=1_000)
    assert not changed
    shows("F59", "runs of which one had changed", len(changed), exactly=0)


async def test_a_run_is_one_slot(redis_cluster: RedisCluster) -> None:
    before: set[bytes] = set()
    for name in NAMES:
        async with open_run(redis_cluster.url, name) as queue:
            await _fill(queue)
            now = {
                key for node in redis_cluster.nodes for key in Picture(node, to_restore=False).keys
            }
            assert len({key_slot(key) for key in now - before}) == 1, name
            before = now
            await accounted(queue)


IMPOSSIBLE: list[Any] = ["", "x" * 2**20, "\ud800", None, 5, b"bytes"]


@pytest.mark.parametrize("name", IMPOSSIBLE, ids=lambda name: repr(name)[:20])
async def test_a_run_that_cannot_be(place: tuple[KeyValueStore, Look], name: Any) -> None:
    store, look = place
    with pytest.raises((ConfigurationError, ValidationError)):
        await open_run(store, name).enqueue(["new"])
    assert await look() == {}


# --- lanes, keys, ids and names of checkpoints ---------------------------------------------------


async def test_awkward_names_come_back_as_they_were(queue: KVStoreQueue) -> None:
    entries = [Entry(name, id=name, lane=name, key=name) for name in NAMES]
    assert await queue.enqueue(entries, checkpoint={name: name for name in NAMES}) == len(NAMES)
    assert await queue.enqueue(entries) == 0
    for name in NAMES:
        assert await queue.checkpoint(name) == name
        (lease,) = await queue.lease(2, lanes=[name])
        assert (lease.item, lease.id, lease.lane, lease.key) == (name, name, name, name)
        await queue.shut(name, 0.0)
        await queue.pace(name, limit=3)
        await lease.bury()
    dead = await letters(queue)
    assert [(d.item, d.id, d.lane, d.key) for d in dead] == [(name,) * 4 for name in NAMES]
    assert await queue.requeue(NAMES) == len(NAMES)
    assert await queue.cancel(NAMES, forget=True) == len(NAMES)
    assert await queue.enqueue(entries) == len(NAMES)
    await accounted(queue)


@pytest.mark.parametrize("name", IMPOSSIBLE, ids=lambda name: repr(name)[:20])
async def test_names_that_cannot_be_change_nothing(queue: KVStoreQueue, name: Any) -> None:
    await queue.enqueue(["held"])
    (held,) = await queue.lease()
    entries = [Entry("new", id=name), Entry("new", key=name), Entry("new", lane=name)]
    if name == "":  # the lane without a name is the default one
        entries.pop()
    if name is None:  # nothing was given
        entries.clear()
    for entry in entries:
        with pytest.raises(ValidationError):
            await queue.enqueue([Entry("fine"), entry])
        with pytest.raises(ValidationError):
            await held.complete([Entry("fine"), entry], {"cursor": 1})
    calls: list[Awaitable[Any]] = [
        queue.enqueue(["new"], checkpoint={name: 1}),
        queue.cancel([name]),
        queue.requeue([name]),
    ]
    for call in calls:
        with pytest.raises(ValidationError):
            await call
    await held.complete()
    assert (await accounted(queue)).enqueued == 1


# --- one key, brought by many --------------------------------------------------------------------


@pytest.mark.parametrize("named", [False, True], ids=["by key", "by key and id"])
async def test_of_two_hundred_with_one_key_one_is_taken(
    make_queue: MakeQueue, named: bool, shows: Evidence
) -> None:
    queues = [make_queue() for _ in range(4)]
    entries = [Entry(n, key="same", id=f"id {n}" if named else None) for n in range(200)]
    told = await asyncio.gather(
        *(queues[n % 4].enqueue([entry]) for n, entry in enumerate(entries))
    )
    shows("F52", "taken of 200 with one key", sum(told), exactly=1)
    shows("F52", "different ids told", len({enqueued.ids for enqueued in told}), exactly=1)
    (lease,) = await queues[0].lease(200)
    assert (lease.id,) == told[0].ids
    stats = await accounted(queues[0])
    assert (stats.enqueued, stats.duplicates) == (1, 199)


PROCESSES, TASKS, KEYS = 4, 50, 10

# Brings each key in as many tasks as it is told, when all are ready; says what it was told.
BRING = """
import json
from data_fetcher_core import Entry
from tests.fault_support import open_run

url, tasks, keys = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

async def bring(queue, key):
    told = await asyncio.gather(*(queue.enqueue([Entry("x", key=key)]) for _ in range(tasks)))
    return [sum(told), sorted({one for enqueued in told for one in enqueued.ids}), len(told)]

async def main():
    async with open_run(url) as queue:
        await queue.size()
        say("ready")
        wait()
        say(json.dumps([await bring(queue, f"{n}") for n in range(keys)]))

asyncio.run(main())
"""


@pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)
async def test_of_four_processes_that_bring_one_key_one_is_taken(
    store_kind: str, store_url: str, shows: Evidence
) -> None:
    with ExitStack() as stack:
        others = [
            stack.enter_context(child(BRING, store_url, TASKS, KEYS)) for _ in range(PROCESSES)
        ]
        for other in others:
            other.expect("ready")
        for other in others:
            other.tell()
        told = [json.loads(other.rest()) for other in others]
    by_key = list(zip(*told, strict=True))
    taken = [sum(new for new, _, _ in answers) for answers in by_key]
    ids = [len({one for _, found, _ in answers for one in found}) for answers in by_key]
    brought = {sum(calls for _, _, calls in answers) for answers in by_key}
    async with open_run(store_url) as queue:
        stats = await accounted(queue)
    where = f"by {PROCESSES} processes on {store_kind}"
    shows("F52", f"each key brought {where}", min(brought), exactly=200, unit="times")
    shows("F52", f"most taken of one key {where}", max(taken), exactly=1)
    shows("F52", f"most ids told of one key {where}", max(ids), exactly=1)
    shows("F52", f"keys brought {where} and in the queue", stats.ready, exactly=KEYS)


async def test_of_fifty_pages_with_one_link_one_brings_it(make_queue: MakeQueue) -> None:
    queues = [make_queue() for _ in range(4)]
    await queues[0].enqueue(range(50))
    leases = [lease for queue in queues for lease in await queue.lease(13)]
    link = Entry("link", key="link")
    told = await asyncio.gather(*(lease.complete([link]) for lease in leases))
    assert sum(told) == 1
    assert len({enqueued.ids for enqueued in told}) == 1
    stats = await accounted(queues[0])
    assert (stats.ready, stats.completed, stats.duplicates) == (1, 50, 49)


async def test_a_key_is_forgotten_between_two_steps_and_never_within_one(
    make_queue: MakeQueue,
) -> None:
    """Who forgets a key while others bring it: as many are taken as were dropped, and one more."""
    queues = [make_queue() for _ in range(4)]
    await queues[0].enqueue([Entry("same", key="same")])
    ((identity,),) = [(await queues[0].enqueue([Entry("same", key="same")])).ids]
    for _ in range(10):
        *told, dropped = await asyncio.gather(
            *(queue.enqueue([Entry("same", key="same")]) for queue in queues),
            queues[0].cancel([identity], forget=True),
        )
        assert dropped == 1
        assert sum(told) <= 1
        await queues[0].enqueue([Entry("same", key="same")])
        assert (await accounted(queues[0])).ready == 1
