"""saq: its worker waits in a blocking command."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from saq import Queue, Worker

from benchmarks.latency import Arrivals, Send, contend


async def connected(given: dict[str, Any]) -> Queue:
    queue = Queue.from_url(given["redis_url"], max_concurrent_ops=given["workers"])
    await queue.connect()
    return queue


@asynccontextmanager
async def sending(given: dict[str, Any]) -> AsyncIterator[Send]:
    queue = await connected(given)
    yield lambda text: queue.enqueue("handle", text=text)
    await queue.disconnect()


async def consume(given: dict[str, Any], arrivals: Arrivals) -> None:
    async def handle(_context: dict[str, Any], *, text: str) -> None:
        arrivals.take(text)

    async def ready(_context: dict[str, Any]) -> None:
        arrivals.ready()

    worker = Worker(
        await connected(given),
        [("handle", handle)],
        concurrency=given["workers"],
        startup=ready,
    )
    await worker.start()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    contend("benchmarks.peers.latency.saq", sending, consume)
