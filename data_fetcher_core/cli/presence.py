"""Who works on a run: each process says so every few seconds, for the others to see."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio

from data_fetcher_core.errors import StoreError
from data_fetcher_core.kv_store import KeyValueStore
from data_fetcher_core.queue.consumers import here, is_surely_dead, make_name, place_of

_PREFIX = "workers"
_INTERVAL = 5.0
_LIFETIME = 20.0
_GOODBYE = 1.0


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that works on a run."""

    host: str
    pid: int
    since: float


async def be_present(store: KeyValueStore, run_id: str) -> None:
    """Until cancelled. A store that is away is the run's own business, and not told here."""
    key, since = f"{run_id}/{make_name(here()).decode()}", time.time()
    try:
        while True:
            with suppress(StoreError):
                await store.put(key, {"since": since}, ttl=_LIFETIME, prefix=_PREFIX)
            await anyio.sleep(_INTERVAL)
    finally:
        with anyio.move_on_after(_GOODBYE, shield=True), suppress(StoreError):
            await store.delete(key, prefix=_PREFIX)


async def workers_on(store: KeyValueStore, run_id: str) -> list[Worker]:
    """Those that live. Of a process on this host it is known at once."""
    # "0" is what follows "/", which no run id holds.
    found = await store.range_get(f"{run_id}/", f"{run_id}0", prefix=_PREFIX)
    named = ((key.partition("/")[2].encode(), value) for key, value in found)
    ours = here()
    living = [_worker(name, value) for name, value in named if not is_surely_dead(name, ours)]
    return [worker for worker in living if worker is not None]


def _worker(name: bytes, value: Any) -> Worker | None:
    place = place_of(name)
    if place is None or not isinstance(value, dict):
        return None
    return Worker(place.host, place.pid, float(value.get("since", 0.0)))
