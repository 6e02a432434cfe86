"""Data that another version wrote: told as such by every verb, and left exactly as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from data_fetcher_core.core import Entry
from data_fetcher_core.errors import ConfigurationError, DataFetcherError, StoreCorrupt
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.transactional import TransactionalStore
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.queue.ordered_keys import OrderedKeys
from tests.conftest import MakeQueue, OpenStore
from tests.evidence import Evidence
from tests.harness import accounted, everything, overwrite
from tests.servers import RedisServer

NAMESPACE = "fetch:test"
# Of a version to come, of one that never was, and what is no number at all.
STEP = {"older": -1, "newer": 1}
LAYOUTS: list[Any] = [*STEP, 99, -1, 2**63, "x", ""]
VERBS: dict[str, Callable[[KVStoreQueue], Awaitable[Any]]] = {
    "enqueue": lambda queue: queue.enqueue(["new"]),
    "lease": lambda queue: queue.lease(9),
    "stats": lambda queue: queue.stats(),
    "clear": lambda queue: queue.clear(),
    "requeue": lambda queue: queue.requeue(),
    "cancel": lambda queue: queue.cancel(["a"]),
    "checkpoint": lambda queue: queue.checkpoint("cursor"),
    "sweep": lambda queue: queue.sweep(),
}


async def contents(store: KeyValueStore, server: RedisServer) -> dict[bytes, Any]:
    if isinstance(store, TransactionalStore):
        return dict(await everything(store))
    with server.client() as client:
        return {key: client.dump(key) for key in client.keys("*")}


async def forge(store: KeyValueStore, server: RedisServer, layout: Any) -> None:
    if isinstance(store, TransactionalStore):
        place = OrderedKeys(NAMESPACE.encode()).meta
        meta = orjson.loads((await everything(store))[place])
        layout = meta["layout"] + STEP[layout] if layout in STEP else layout
        forged = layout if not isinstance(layout, int) or layout < 2**63 else float(layout)
        await overwrite(store, place, orjson.dumps({**meta, "layout": forged}))
    else:
        key = f"{{{NAMESPACE}}}:state"
        with server.client() as client:
            now = int(client.hget(key, "layout"))
            client.hset(key, "layout", now + STEP[layout] if layout in STEP else layout)


@pytest.mark.parametrize("layout", LAYOUTS, ids=repr)
async def test_a_run_of_another_layout_is_refused_and_left_alone(
    make_queue: MakeQueue,
    open_store: OpenStore,
    redis_server: RedisServer,
    layout: Any,
    shows: Evidence,
) -> None:
    store = open_store()
    first = make_queue(store=store)
    await first.enqueue([Entry("a", key="a"), "b"], checkpoint={"cursor": 1})
    await first.close()
    truth = await contents(store, redis_server)
    await forge(store, redis_server, layout)
    forged = await contents(store, redis_server)
    refused = [verb for verb in VERBS if await _is_refused(make_queue(store=store), verb)]
    changed = await contents(store, redis_server) != forged
    shows("F55", "verbs that refuse a run of another layout", len(refused), exactly=len(VERBS))
    shows("F55", "of them that changed it", int(changed), exactly=0)
    await _put_back(store, redis_server, truth)
    assert (await accounted(make_queue(store=store))).ready == 2


async def _is_refused(queue: KVStoreQueue, verb: str) -> bool:
    try:
        await VERBS[verb](queue)
    except (ConfigurationError, StoreCorrupt) as error:
        return bool(str(error))
    return False


async def _put_back(store: KeyValueStore, server: RedisServer, truth: dict[bytes, Any]) -> None:
    if isinstance(store, TransactionalStore):
        key = OrderedKeys(NAMESPACE.encode()).meta
        await overwrite(store, key, truth[key])
        return
    with server.client() as client:
        for key, value in truth.items():
            client.restore(key, 0, value, replace=True)


@pytest.mark.parametrize(
    "pragma", ["user_version = 2", "user_version = 0", "user_version = -1", "application_id = 7"]
)
async def test_a_file_of_another_layout_is_refused_and_left_alone(
    tmp_path: Path, pragma: str, shows: Evidence
) -> None:
    path = tmp_path / "run.db"
    async with create_kv_store("sqlite", path=path) as store:
        await store.put("key", 1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA {pragma}")
        connection.commit()
    before = path.read_bytes()
    store = create_kv_store("sqlite", path=path)
    with pytest.raises(DataFetcherError):
        await store.put("key", 2)
    await store.close()
    shows(
        "F55",
        "files of another layout that were written to",
        int(path.read_bytes() != before),
        exactly=0,
    )
