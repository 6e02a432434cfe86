"""Our queue on SQLite: 100 workers of one process that lease one by one."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from benchmarks.contract import parameters, tell
from benchmarks.metering import FolderMeter, requests_of
from benchmarks.ours.queue_phases import check_completed, drain, fill, leave_seen_keys
from data_fetcher_core import open_queue
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue


@asynccontextmanager
async def opened(given: dict[str, Any], file: Path) -> AsyncIterator[KVStoreQueue]:
    store = SQLiteStore(str(file), synchronous=given["synchronous"])
    try:
        async with open_queue(store, run_id="bench", serializer=JSONSerializer()) as queue:
            yield queue
    finally:
        await store.close()


async def measure_requests(given: dict[str, Any]) -> dict[str, float]:
    file, meter = Path(given["folder"]) / "requests.db", FolderMeter(given["folder"])
    singles, many = requests_of(given)
    count = len(singles) + len(many)
    async with opened(given, file) as queue:
        await queue.size()
    meter.closed_empty()
    async with opened(given, file) as queue:
        await fill(queue, singles, many, meter)
    meter.closed_full(count)
    async with opened(given, file) as queue:
        with meter.timed("drain", count):
            await drain(queue, given["workers"])
        await check_completed(queue, count)
    return meter.metrics


async def measure_seen_keys(given: dict[str, Any]) -> dict[str, float]:
    file, keys = Path(given["folder"]) / "keys.db", given["keys"]
    async with opened(given, file) as queue:
        await queue.size()
    before = used_bytes(file)
    async with opened(given, file) as queue:
        await leave_seen_keys(queue, keys, given["workers"], given["payload_bytes"])
    return {"bytes_per_seen_key": (used_bytes(file) - before) / keys}


def used_bytes(file: Path) -> int:
    """Pages in use: what a request has left behind free is there for the next one."""
    with closing(sqlite3.connect(file)) as database:
        names = ("page_count", "freelist_count", "page_size")
        pages, free, size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return int((pages - free) * size)


async def run(given: dict[str, Any]) -> dict[str, float]:
    return {**await measure_requests(given), **await measure_seen_keys(given)}


def main() -> None:
    logging.disable(logging.WARNING)
    tell(asyncio.run(run(parameters())))


if __name__ == "__main__":
    main()
