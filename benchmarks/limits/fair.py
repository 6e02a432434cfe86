"""First in, first out: an ``asyncio.Queue`` knows no lanes."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.contract import parameters, tell
from benchmarks.fairness import Served, arrivals


async def run(given: dict[str, Any]) -> dict[str, float]:
    queue: asyncio.Queue[int] = asyncio.Queue()
    for lane in arrivals(given):
        queue.put_nowait(lane)
    served = Served(given)

    async def work() -> None:
        while not queue.empty():
            await served.work(queue.get_nowait())

    async with asyncio.TaskGroup() as group:
        for _ in range(given["workers"]):
            group.create_task(work())
    return served.metrics()


if __name__ == "__main__":
    tell(asyncio.run(run(parameters())))
