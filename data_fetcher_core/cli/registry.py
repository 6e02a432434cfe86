"""The runs of a store, by their ids: what a queue cannot tell, since it knows only itself."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import anyio

from data_fetcher_core.errors import StoreError
from data_fetcher_core.kv_store import KeyValueStore
from data_fetcher_core.queue import KVStoreQueue, RequestMetaSerializer
from data_fetcher_core.queue.entries import run_namespace

_PREFIX = "runs"
_PAGE = 500
_GOODBYE = 1.0
SETTINGS = "settings"


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run as it is listed."""

    run_id: str
    command: str
    title: str
    created_at: float


async def register(store: KeyValueStore, run_id: str, command: str, title: str) -> None:
    """List the run, if it is not yet."""
    if not await store.exists(run_id, prefix=_PREFIX):
        entry = asdict(RunEntry(run_id, command, title, time.time()))
        await store.put(run_id, entry, prefix=_PREFIX)


async def find(store: KeyValueStore, run_id: str) -> RunEntry | None:
    found = await store.get(run_id, prefix=_PREFIX)
    return None if found is None else _read(run_id, found)


async def remove(store: KeyValueStore, run_id: str) -> None:
    await store.delete(run_id, prefix=_PREFIX)


async def all_runs(store: KeyValueStore) -> AsyncIterator[RunEntry]:
    """In the order of their ids."""
    start = ""
    while True:
        page = await store.range_get(start, limit=_PAGE, prefix=_PREFIX)
        for run_id, found in page:
            yield _read(run_id, found)
        if len(page) < _PAGE:
            return
        start = page[-1][0] + "\0"


class LookingQueue(KVStoreQueue):
    """Holds no leases: a store that is away need not be told that nobody looks any more."""

    async def close(self) -> None:
        with anyio.move_on_after(_GOODBYE, shield=True), suppress(StoreError):
            await super().close()


def run_queue(store: KeyValueStore, run_id: str) -> LookingQueue:
    """The queue of a run, to look at it and to tidy it. Opening it begins a run of that name."""
    namespace = run_namespace(run_id)
    return LookingQueue(store, namespace, RequestMetaSerializer(), subscriber=lambda _: None)


def _read(run_id: str, found: Any) -> RunEntry:
    known = found if isinstance(found, dict) else {}
    return RunEntry(
        run_id,
        str(known.get("command", "?")),
        str(known.get("title", "")),
        float(known.get("created_at", 0.0)),
    )
