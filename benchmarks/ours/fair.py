"""Lanes take turns, however much one of them wants. With ``fair`` off they stand in one line."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from benchmarks.contract import parameters, tell
from benchmarks.fairness import Served, arrivals
from benchmarks.ours.stores import store_url
from data_fetcher_core import Entry, QueueOptions, open_queue
from data_fetcher_core.queue import JSONSerializer


async def run(given: dict[str, Any]) -> dict[str, float]:
    options = QueueOptions(fair=given["fair"])
    async with open_queue(
        store_url(given), run_id="fair", serializer=JSONSerializer(), options=options
    ) as queue:
        await queue.enqueue(Entry(lane, lane=f"lane{lane}") for lane in arrivals(given))
        served = Served(given)

        async def work() -> None:
            async for lease in queue.leases(until="drained"):
                async with lease:
                    await served.work(lease.item)

        async with asyncio.TaskGroup() as group:
            for _ in range(given["workers"]):
                group.create_task(work())
    return served.metrics()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    tell(asyncio.run(run(parameters())))
