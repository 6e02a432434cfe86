"""saq on Redis: a job that is active for longer than its time-out is swept and tried again."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from saq import Queue, Worker

from benchmarks.contract import parameters, tell
from benchmarks.metering import RedisMeter, requests_of, share_out


async def run(given: dict[str, Any]) -> dict[str, float]:
    singles, many = requests_of(given)
    count, handled, finished = len(singles) + len(many), 0, asyncio.Event()
    queue = Queue.from_url(given["redis_url"], max_concurrent_ops=given["workers"])
    await queue.connect()

    async def nothing(_context: dict[str, Any], *, item: str) -> None:
        pass

    async def after(_context: dict[str, Any]) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            finished.set()

    meter = RedisMeter(given["redis_url"])
    with meter.timed("enqueue_single", len(singles)):
        for item in singles:
            await queue.enqueue("nothing", item=item)
    with meter.filling(len(many)):
        await share_out(
            many,
            given["senders"],
            lambda item: queue.enqueue("nothing", item=item),
        )
    worker = Worker(
        queue,
        [("nothing", nothing)],
        concurrency=given["workers"],
        after_process=after,
        dequeue_timeout=1.0,
    )
    with meter.draining(count):
        working = asyncio.create_task(worker.start())
        await finished.wait()
    await worker.stop()
    await working
    assert (queue.complete, queue.failed) == (count, 0)
    await queue.disconnect()
    return meter.metrics


def main() -> None:
    logging.disable(logging.WARNING)
    tell(asyncio.run(run(parameters())))


if __name__ == "__main__":
    main()
