"""streaq: a Redis stream with renewed claims, and functions on the server."""

from __future__ import annotations

import logging
from typing import Any

import anyio
from streaq import Worker

from benchmarks.contract import parameters, tell
from benchmarks.metering import RedisMeter, requests_of

CHUNK = 1_000


async def run(given: dict[str, Any]) -> dict[str, float]:
    singles, many = requests_of(given)
    count, handled = len(singles) + len(many), 0
    worker = Worker(
        redis_url=given["redis_url"], concurrency=given["workers"], handle_signals=False
    )

    async def nothing(_: str) -> None:
        nonlocal handled
        handled += 1

    task = worker.task(ttl=0, silent=True)(nothing)
    async with worker:
        meter = RedisMeter(given["redis_url"])
        with meter.timed("enqueue_single", len(singles)):
            for item in singles:
                await task.enqueue(item)
        with meter.filling(len(many)):
            for start in range(0, len(many), CHUNK):
                some = many[start : start + CHUNK]
                await worker.enqueue_many([task.enqueue(item) for item in some])
    worker.burst = True
    with meter.draining(count):
        await worker.run_async()
    assert (handled, worker.counters["completed"]) == (count, count), handled
    return meter.metrics


def main() -> None:
    logging.disable(logging.WARNING)
    tell(anyio.run(run, parameters()))


if __name__ == "__main__":
    main()
