"""taskiq with its Redis stream: its receiver waits in a blocking read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from taskiq import AsyncTaskiqDecoratedTask
from taskiq.receiver import Receiver
from taskiq_redis import RedisStreamBroker

from benchmarks.latency import Arrivals, Send, contend


async def started(
    given: dict[str, Any], arrivals: Arrivals
) -> tuple[RedisStreamBroker, AsyncTaskiqDecoratedTask[Any, Any]]:
    broker = RedisStreamBroker(given["redis_url"], xread_count=100)

    async def handle(text: str) -> None:
        arrivals.take(text)

    task = broker.register_task(handle, task_name="handle")
    await broker.startup()
    return broker, task


@asynccontextmanager
async def sending(given: dict[str, Any]) -> AsyncIterator[Send]:
    broker, task = await started(given, Arrivals())
    yield task.kiq
    await broker.shutdown()


async def consume(given: dict[str, Any], arrivals: Arrivals) -> None:
    broker, _ = await started(given, arrivals)
    receiver = Receiver(
        broker,
        run_startup=False,
        max_async_tasks=given["workers"],
        max_prefetch=given["workers"],
    )
    arrivals.ready()
    await receiver.listen(asyncio.Event())


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    contend("benchmarks.peers.latency.taskiq", sending, consume)
