"""Every operation of a queue, cancelled at each of its awaits in turn: nothing is left over."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable

import pytest

from data_fetcher_core.kv_store.redis import RedisStore
from data_fetcher_core.queue.lease import LeaseState
from tests.conftest import MakeQueue
from tests.evidence import Evidence
from tests.harness import CancelAt, accounted, beat_twice, foreign_tasks, in_use
from tests.operations import OPERATIONS, Stage
from tests.servers import RedisServer
from tests.waiting import until


@pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)
@pytest.mark.parametrize("name", OPERATIONS)
async def test_cancelled_at_every_await(
    make_queue: MakeQueue, shows: Evidence, name: str, store_kind: str, redis_server: RedisServer
) -> None:
    store = make_queue()._store
    clients = await _clients_of_one_round(make_queue, redis_server) if store_kind == "redis" else 0
    left: Counter[str] = Counter()
    for nth in itertools.count(1):
        stage = Stage(make_queue(f"fetch:{nth}", store=store))
        await stage.set()
        known = set(asyncio.all_tasks())
        work = CancelAt(OPERATIONS[name](stage), nth)
        await _ended(work)
        left += await _left_over(stage, known)
        if not work.reached:
            break
    shows("F11", "awaits at which operations were cancelled", nth - 1, at_least=1)
    for what in ("unaccounted for", "leased by nobody", "tasks left running"):
        shows("F11", what, left[what], exactly=0)
    if isinstance(store, RedisStore):
        shows("F11", "connections of a queue in use afterwards", in_use(store), exactly=0)
        await until(lambda: redis_server.connected_clients() <= clients + 2)
        more = redis_server.connected_clients() - clients
        shows("F11", "clients more on the server", max(more, 0), at_most=2)


async def _clients_of_one_round(make_queue: MakeQueue, server: RedisServer) -> int:
    stage = Stage(make_queue("fetch:0"))
    await stage.set()
    await stage.queue.close()
    return server.connected_clients()


async def _ended(work: Awaitable[object]) -> None:
    async def finish() -> None:
        await work

    task = asyncio.ensure_future(finish())
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


async def _left_over(stage: Stage, known: set[asyncio.Task[object]]) -> Counter[str]:
    """What is still there when the queue has been closed; the queue itself goes on."""
    await beat_twice(stage.queue)
    stats = await accounted(stage.queue)
    holding = sum(lease.state is LeaseState.HELD for lease in stage.held)
    await stage.queue.enqueue(["after"], lane="after")
    (one,) = await stage.queue.lease(lanes=["after"])
    await one.complete()
    await stage.queue.close()
    return +Counter(
        {
            "unaccounted for": abs(stats.unaccounted),
            "leased by nobody": abs(stats.leased - holding),
            "tasks left running": len(foreign_tasks(known)),
        }
    )
