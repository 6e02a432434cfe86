"""Does a lease cost more when there is more of everything?

Fills queues with few and many requests, in few and many lanes, opens them anew, and takes turns
between them: a lease of a batch and its settlement from each, round after round, so that a noisy
machine is equally noisy to all.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import statistics
import time
from typing import Any, NamedTuple

from benchmarks.contract import parameters, payload, tell
from benchmarks.ours.stores import store_url
from data_fetcher_core import Entry, open_queue
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue

STEP = 10_000


class World(NamedTuple):
    requests: int
    lanes: int

    def queue(self, url: str) -> KVStoreQueue:
        return open_queue(url, run_id=f"{self}", serializer=JSONSerializer())


def worlds(given: dict[str, Any]) -> dict[str, World]:
    """By the name of what they tell. Where both lines meet, one world tells both."""
    by_requests = {f"lease_us@{n}": World(n, given["few_lanes"]) for n in given["requests"]}
    by_lanes = {f"lane_us@{n}": World(given["fixed_requests"], n) for n in given["lanes"]}
    return by_requests | by_lanes


async def fill(world: World, url: str, item: str) -> None:
    async with world.queue(url) as queue:
        for start in range(0, world.requests, STEP):
            numbers = range(start, min(start + STEP, world.requests))
            await queue.enqueue(Entry(item, lane=f"lane{n % world.lanes}") for n in numbers)


async def one_round(queue: KVStoreQueue, batch: int) -> float:
    """Seconds for a lease of a batch, and its settlement."""
    begin = time.perf_counter()
    leases = await queue.lease(batch)
    await asyncio.gather(*(lease.complete() for lease in leases))
    assert len(leases) == batch
    return time.perf_counter() - begin


async def costs(url: str, every: list[World], given: dict[str, Any]) -> dict[World, float]:
    """Microseconds for one request, the median of many rounds."""
    queues = {world: world.queue(url) for world in every}
    seconds: dict[World, list[float]] = {world: [] for world in every}
    for _ in range(given["turns"]):
        for world, queue in queues.items():
            seconds[world].append(await one_round(queue, given["batch"]))
    for queue in queues.values():
        await queue.close()
    return {
        world: statistics.median(found) / given["batch"] * 1e6 for world, found in seconds.items()
    }


async def measure(given: dict[str, Any]) -> dict[str, float]:
    told, url = worlds(given), store_url(given)
    every = list(dict.fromkeys(told.values()))
    for world in every:
        await fill(world, url, payload(given["payload_bytes"]))
    gc.collect()
    found = await costs(url, every, given)
    return {name: found[world] for name, world in told.items()}


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    tell(asyncio.run(measure(parameters())))
