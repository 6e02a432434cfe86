"""The queue between processes, through their deaths, and through those of its store."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core import Entry, RequestMeta, open_queue
from data_fetcher_core.clock import SYSTEM_CLOCK
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.queue import KVStoreQueue, RequestMetaSerializer
from tests.children import NAMESPACE, child, go_on, said
from tests.conftest import MakeQueue, OpenStore, StartRedis
from tests.harness import accounted, crash, drain, eventually, places

between_processes = pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)
PATIENCE = 60.0


async def heard(process: Any) -> Any:
    """What a child says next, without stopping the loop."""
    return await asyncio.wait_for(asyncio.to_thread(said, process), PATIENCE)


# --- persistence -------------------------------------------------------------------------------


@between_processes
async def test_a_run_is_resumed_by_its_id(store_url: str) -> None:
    """Begun, stopped, and resumed: no page is asked for twice, none is forgotten."""
    seeds = [RequestMeta(f"http://example.com/{n}", depth=n) for n in range(5)]
    async with open_queue(store_url, run_id="docs") as queue:
        await queue.enqueue([Entry(seed, key=seed.fingerprint) for seed in seeds])
        for lease in await queue.lease(2):
            await lease.complete(checkpoint={"cursor": lease.item.depth})
        await queue.lease()
    async with open_queue(store_url, run_id="docs") as queue:
        assert await queue.checkpoint("cursor") == 1
        again = await queue.enqueue([Entry(seed, key=seed.fingerprint) for seed in seeds])
        assert again == 0
        assert await queue.dequeue(9) == seeds[2:]
        stats = await accounted(queue)
        assert (stats.completed, stats.duplicates) == (5, 5)


@between_processes
async def test_every_place_survives_a_crash(
    make_queue: MakeQueue, store_url: str, clock: Any
) -> None:
    queue = make_queue()
    await queue.enqueue([Entry(n, key=str(n), lane="ab"[n % 2]) for n in range(6)])
    await queue.enqueue(["later"], delay=5.0, checkpoint={"cursor": {"page": 3}})
    await queue.shut("b", 5.0)
    done, dead = await queue.lease(2)
    await done.complete(result="done")
    await dead.bury("no")
    await crash(queue)
    store = create_kv_store(store_url)
    again = make_queue(store=store)
    assert await places(again) == {"ready": 4, "delayed": 1, "dead": 1}
    assert await again.checkpoint("cursor") == {"page": 3}
    assert [result for _, result in await again.results()] == ["done"]
    assert await again.enqueue([Entry(0, key="0")]) == 0
    taken = await drain_open_lanes(again)
    assert all(item % 2 == 0 for item in taken), "the gate holds"
    clock.advance(5.0)
    assert len(await drain(again)) == 5 - len(taken)
    await accounted(again)
    await again.close()
    await store.close()


async def drain_open_lanes(queue: KVStoreQueue) -> list[Any]:
    taken: list[Any] = []
    while found := await queue.dequeue(9):
        taken += found
    return taken


async def test_redis_is_killed_and_comes_back(start_redis: StartRedis) -> None:
    """With its log on disk before every answer, nothing accepted is lost; nobody has to reopen."""
    server = start_redis(appendonly="yes", appendfsync="always")
    store = create_kv_store(server.url)
    queue = KVStoreQueue(store, NAMESPACE)
    await queue.enqueue(range(50), checkpoint={"at": 50})
    (lease,) = await queue.lease()
    server.restart()
    await lease.complete(enqueue=["child"])
    assert await queue.size() == 50
    assert await queue.checkpoint("at") == 50
    server.restart()
    assert sorted(map(str, await drain(queue))) == sorted([*map(str, range(1, 50)), "child"])
    assert (await accounted(queue)).completed == 51
    await queue.close()
    await store.close()


# --- namespaces --------------------------------------------------------------------------------


async def test_runs_do_not_interfere(open_store: OpenStore) -> None:
    store = open_store()
    serializer = RequestMetaSerializer()
    runs = [KVStoreQueue(store, f"fetch:run{n}", serializer) for n in range(3)]
    for number, queue in enumerate(runs):
        requests = [RequestMeta(f"http://{number}/{n}") for n in range(number + 1)]
        await queue.enqueue([Entry(request, key="same", id="same") for request in requests[:1]])
        await queue.enqueue(requests[1:])
    assert [await queue.size() for queue in runs] == [1, 2, 3]
    await runs[0].clear()
    assert await runs[1].cancel(["same"]) == 1
    assert [await queue.size() for queue in runs] == [0, 1, 3]
    found = await runs[2].dequeue(9)
    assert {request.url.host for request in found} == {"2"}
    for queue in runs:
        await queue.close()


# --- two processes, one queue ------------------------------------------------------------------


@between_processes
async def test_two_processes_share_a_queue(make_queue: MakeQueue, store_url: str) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(child("share", store_url, n * 100, 100)) for n in range(2)]
        for process in processes:
            assert await heard(process) == "enqueued"
        for process in processes:
            go_on(process)
        shares = await asyncio.gather(*(heard(process) for process in processes))
    assert sorted(item for share in shares for item in share) == list(range(200))
    stats = await accounted(make_queue(clock=SYSTEM_CLOCK))
    assert (stats.completed, stats.retried, stats.dead) == (200, 0, 0)


@between_processes
async def test_two_processes_bring_one_key(make_queue: MakeQueue, store_url: str) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(child("crowd", store_url, "key")) for _ in range(2)]
        for process in processes:
            assert await heard(process) == "ready"
        for process in processes:
            go_on(process)
        outcomes = await asyncio.gather(*(heard(process) for process in processes))
    assert sum(new for new, _ in outcomes) == 1
    assert len({identity for _, ids in outcomes for identity in ids}) == 1
    assert await make_queue(clock=SYSTEM_CLOCK).size() == 1


@between_processes
async def test_a_crawl_whose_workers_are_killed(make_queue: MakeQueue, store_url: str) -> None:
    """Every page is completed once, whoever dies meanwhile; the rest take up what they held."""
    queue = make_queue(clock=SYSTEM_CLOCK, max_deaths=1_000)
    await queue.enqueue([Entry(1, key="1")])
    with ExitStack() as stack:
        workers = [stack.enter_context(child("crawl", store_url)) for _ in range(3)]
        for worker in workers:
            assert await heard(worker) == "ready"
        for number, worker in enumerate(workers[1:], start=1):
            await eventually(_completed(queue, 60 * number), PATIENCE)
            worker.send_signal(signal.SIGKILL)
            worker.wait(20)
        replacement = stack.enter_context(child("crawl", store_url))
        assert await heard(replacement) == "ready"
        assert await heard(workers[0]) == "drained"
        assert await heard(replacement) == "drained"
    stats = await accounted(queue)
    assert (stats.completed, stats.dead, stats.retried) == (511, 0, 0)
    results = Counter([result for _, result in await queue.results(limit=1_000)])
    assert results == Counter(range(1, 512)), "each page once"


def _completed(queue: KVStoreQueue, count: int) -> Any:
    async def look() -> bool:
        return (await queue.stats()).completed >= count

    return look


@between_processes
async def test_a_worker_that_died_does_not_keep_the_next_from_starting(
    make_queue: MakeQueue, store_url: str, tmp_path: Path
) -> None:
    """Resumed right after ``kill -9``: nobody waits for a lease to run out."""
    queue = make_queue(clock=SYSTEM_CLOCK, lease_ttl=600.0)
    await queue.enqueue(range(3))
    with child("hold", store_url, 3) as process:
        assert await heard(process) == [0, 1, 2]
        process.send_signal(signal.SIGKILL)
        process.wait(20)
    leases = await asyncio.wait_for(queue.lease(9, wait=5.0), PATIENCE)
    assert sorted(lease.item for lease in leases) == [0, 1, 2]
