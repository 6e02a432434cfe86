"""taskiq with its Redis stream: acknowledged after the work, redelivered after ten idle minutes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from taskiq.receiver import Receiver
from taskiq_redis import RedisStreamBroker

from benchmarks.contract import parameters, tell
from benchmarks.metering import RedisMeter, requests_of, share_out


async def run(given: dict[str, Any]) -> dict[str, float]:
    singles, many = requests_of(given)
    count, handled = len(singles) + len(many), 0
    broker = RedisStreamBroker(given["redis_url"])

    async def nothing(_: str) -> None:
        nonlocal handled
        handled += 1

    task = broker.register_task(nothing, task_name="nothing")
    await broker.startup()
    meter = RedisMeter(given["redis_url"])
    with meter.timed("enqueue_single", len(singles)):
        for item in singles:
            await task.kiq(item)
    with meter.filling(len(many)):
        await share_out(many, given["senders"], task.kiq)
    receiver = Receiver(
        broker,
        run_startup=False,
        max_async_tasks=given["workers"],
        max_prefetch=given["workers"],
        max_tasks_to_execute=count,
    )
    with meter.draining(count):
        await receiver.listen(asyncio.Event())
    assert handled == count, handled
    await broker.shutdown()
    return meter.metrics


def main() -> None:
    logging.disable(logging.WARNING)
    tell(asyncio.run(run(parameters())))


if __name__ == "__main__":
    main()
