"""How our queue is filled and drained, whatever the store: through the public API alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from benchmarks.contract import payload
from benchmarks.metering import Meter
from data_fetcher_core import Entry, RequestMeta
from data_fetcher_core.queue import KVStoreQueue

HOSTS = 10
CHUNK = 10_000


async def fill(
    queue: KVStoreQueue, singles: Sequence[str], many: Sequence[str], meter: Meter
) -> None:
    with meter.timed("enqueue_single", len(singles)):
        for item in singles:
            await queue.enqueue([item])
    with meter.filling(len(many)):
        await queue.enqueue(many)


async def drain(queue: KVStoreQueue, workers: int) -> None:
    """Every worker leases one and settles it; that calls travel together is the queue's doing."""
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(_work(queue))


async def _work(queue: KVStoreQueue) -> None:
    while leases := await queue.lease():
        await leases[0].complete()


async def check_completed(queue: KVStoreQueue, requests: int) -> None:
    stats = await queue.stats()
    assert (stats.completed, stats.unaccounted) == (requests, 0), stats


async def leave_seen_keys(queue: KVStoreQueue, keys: int, workers: int, size: int) -> None:
    """So many requests with a key come and go; the keys stay."""
    for start in range(0, keys, CHUNK):
        numbers = range(start, min(start + CHUNK, keys))
        await queue.enqueue(_keyed(number, size) for number in numbers)
        await drain(queue, workers)
    await check_completed(queue, keys)


def _keyed(number: int, size: int) -> Entry:
    host = f"host{number % HOSTS}.example"
    page = RequestMeta(f"https://{host}/page/{number}")
    return Entry(payload(size), lane=host, key=page.fingerprint)
