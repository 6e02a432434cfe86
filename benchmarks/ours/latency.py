"""From ``enqueue`` in one process to a lease in another, on Redis or SQLite."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.latency import Arrivals, Send, contend
from benchmarks.ours.stores import store_url
from data_fetcher_core import open_queue
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue


def queue_of(given: dict[str, Any]) -> KVStoreQueue:
    logging.disable(logging.WARNING)
    return open_queue(store_url(given), run_id="latency", serializer=JSONSerializer())


@asynccontextmanager
async def sending(given: dict[str, Any]) -> AsyncIterator[Send]:
    async with queue_of(given) as queue:
        yield lambda text: queue.enqueue([text])


async def consume(given: dict[str, Any], arrivals: Arrivals) -> None:
    async with queue_of(given) as queue, asyncio.TaskGroup() as group:

        async def work() -> None:
            async for lease in queue.leases():
                async with lease:
                    arrivals.take(lease.item)

        for _ in range(given["workers"]):
            group.create_task(work())
        arrivals.ready()


if __name__ == "__main__":
    contend("benchmarks.ours.latency", sending, consume)
