"""put, get and task_done of asyncio's own queues: in batches, and one by one by many workers."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.contract import parameters, payload, rate, tell

Item = tuple[int, int, str]


async def in_batches(queue: asyncio.Queue[Item], items: list[Item], batch: int) -> None:
    for first in range(0, len(items), batch):
        for item in items[first : first + batch]:
            await queue.put(item)
        while not queue.empty():
            await queue.get()
            queue.task_done()


async def one_by_one(queue: asyncio.Queue[Item], items: list[Item]) -> None:
    for item in items:
        await queue.put(item)
        await queue.get()
        queue.task_done()


async def measured(given: dict[str, Any], items: list[Item]) -> dict[str, float]:
    queue: asyncio.Queue[Item] = getattr(asyncio, given["queue"])()
    began = time.perf_counter()
    await in_batches(queue, items, given["batch"])
    halfway = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(given["workers"]):
            group.create_task(one_by_one(queue, items[number :: given["workers"]]))
    ended = time.perf_counter()
    return {
        "cycle_batch": rate(len(items), halfway - began),
        "cycle_single": rate(len(items), ended - halfway),
    }


def main() -> None:
    given = parameters()
    texts = (payload(given["payload_bytes"], number) for number in range(given["requests"]))
    # What a PriorityQueue needs: a priority, and a number that keeps the order and the peace.
    items = [(number % 3, number, text) for number, text in enumerate(texts)]
    tell(asyncio.run(measured(given, items)))


if __name__ == "__main__":
    main()
