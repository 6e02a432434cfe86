"""How many requests a second go through a queue, by 100 workers of one process.

Every worker writes ``(lease,) = await queue.lease()`` and ``await lease.complete()``, one at a
time; the batches are the queue's own doing.

    python -m benchmarks.throughput [--requests 20000] [--store memory|sqlite|redis]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from contextlib import ExitStack

from benchmarks.machine import describe
from benchmarks.scale import PAYLOAD, store_url
from data_fetcher_core import Entry, open_queue
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue

WORKERS = 100


async def work(queue: KVStoreQueue) -> None:
    while leases := await queue.lease():
        await leases[0].complete()


async def run(url: str, requests: int, lanes: int) -> tuple[float, float]:
    async with open_queue(url, run_id=f"lanes{lanes}", serializer=JSONSerializer()) as queue:
        begin = time.perf_counter()
        await queue.enqueue(Entry(PAYLOAD, lane=str(n % lanes)) for n in range(requests))
        enqueued = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(work(queue))
        drained = time.perf_counter()
        stats = await queue.stats()
        assert (stats.completed, stats.unaccounted) == (requests, 0), stats
    return requests / (enqueued - begin), requests / (drained - enqueued)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--store", choices=["memory", "sqlite", "redis"], action="append")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    print(describe(), flush=True)
    for store in chosen.store or ["memory", "sqlite", "redis"]:
        with ExitStack() as stack:
            url = "memory://" if store == "memory" else stack.enter_context(store_url(store))
            for lanes in (1, 1_000):
                taken_in, drained = asyncio.run(run(url, chosen.requests, lanes))
                print(
                    f"{store:7} {lanes:>5,} lanes: enqueue {taken_in:>8,.0f}/s, "
                    f"lease and complete {drained:>8,.0f}/s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
