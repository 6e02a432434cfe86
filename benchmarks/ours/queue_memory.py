"""enqueue, lease and complete over the memory store: in batches, and one by one by many workers."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from benchmarks.contract import parameters, payload, rate, tell
from data_fetcher_core import open_queue
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue


async def in_batches(queue: KVStoreQueue, items: list[str], batch: int) -> None:
    for first in range(0, len(items), batch):
        await queue.enqueue(items[first : first + batch])
        leases = await queue.lease(max_items=batch)
        await asyncio.gather(*(lease.complete() for lease in leases))


async def one_by_one(queue: KVStoreQueue, items: list[str]) -> None:
    for item in items:
        await queue.enqueue([item])
        (lease,) = await queue.lease()
        await lease.complete()


async def measured_in_batches(given: dict[str, Any], items: list[str]) -> float:
    async with open_queue("memory://", run_id="batches", serializer=JSONSerializer()) as queue:
        began = time.perf_counter()
        await in_batches(queue, items, given["batch"])
        seconds = time.perf_counter() - began
        await check(queue, len(items))
    return rate(len(items), seconds)


async def measured_one_by_one(given: dict[str, Any], items: list[str]) -> float:
    workers = given["workers"]
    async with open_queue("memory://", run_id="single", serializer=JSONSerializer()) as queue:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                group.create_task(one_by_one(queue, items[number::workers]))
        seconds = time.perf_counter() - began
        await check(queue, len(items))
    return rate(len(items), seconds)


async def check(queue: KVStoreQueue, requests: int) -> None:
    stats = await queue.stats()
    assert (stats.completed, stats.unaccounted) == (requests, 0), stats


def main() -> None:
    logging.disable(logging.WARNING)
    given = parameters()
    items = [payload(given["payload_bytes"], number) for number in range(given["requests"])]
    tell(
        {
            "cycle_batch": asyncio.run(measured_in_batches(given, items)),
            "cycle_single": asyncio.run(measured_one_by_one(given, items)),
        }
    )


if __name__ == "__main__":
    main()
