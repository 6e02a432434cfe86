"""Does it cost more to lease and settle when there is more of it?

Fills queues with few and with many requests, in few and in many lanes, opens them anew, and takes
turns between them: a lease of a batch and its settlement from each, round after round, so that a
noisy machine is equally noisy to all. Prints the medians and their ratios; exits with 1 where one
is over its bound: 1.5 for requests, 2 for lanes, one second for opening.

    python -m benchmarks.scale [--small] [--store sqlite|redis] [--batch 10]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from benchmarks.machine import describe
from benchmarks.servers import new_sqlite_url, running_redis
from data_fetcher_core import Entry, open_queue
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue

PAYLOAD = {"url": "https://example.com/" + "x" * 150, "depth": 3}
ROUNDS = 80


class Cost(NamedTuple):
    opening: float
    leasing: float
    settling: float


async def fill(url: str, run_id: str, requests: int, lanes: int) -> None:
    async with open_queue(url, run_id=run_id, serializer=JSONSerializer()) as queue:
        for start in range(0, requests, 10_000):
            numbers = range(start, min(start + 10_000, requests))
            await queue.enqueue(Entry(PAYLOAD, lane=f"lane{n % lanes}") for n in numbers)


async def one_round(queue: KVStoreQueue, batch: int) -> tuple[float, float]:
    begin = time.perf_counter()
    leases = await queue.lease(batch)
    leased = time.perf_counter()
    await asyncio.gather(*(lease.complete() for lease in leases))
    settled = time.perf_counter()
    assert len(leases) == batch
    return leased - begin, settled - leased


async def opened(url: str, run_id: str) -> tuple[KVStoreQueue, float]:
    begin = time.perf_counter()
    queue = open_queue(url, run_id=run_id, serializer=JSONSerializer())
    await queue.lease(1)
    return queue, time.perf_counter() - begin


async def measure(url: str, names: Iterable[str], batch: int) -> dict[str, Cost]:
    queues = {name: await opened(url, name) for name in names}
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in queues}
    for _ in range(ROUNDS):
        for name, (queue, _) in queues.items():
            rounds[name].append(await one_round(queue, batch))
    for queue, _ in queues.values():
        await queue.__aexit__(None, None, None)
    return {
        name: Cost(queues[name][1], *map(statistics.median, zip(*found, strict=True)))
        for name, found in rounds.items()
    }


async def run(url: str, store: str, worlds: Mapping[str, tuple[int, int]], batch: int) -> bool:
    for name, (requests, lanes) in worlds.items():
        begin = time.perf_counter()
        await fill(url, name, requests, lanes)
        rate = requests / (time.perf_counter() - begin)
        print(
            f"{store:7} {requests:>9,} requests in {lanes:>7,} lanes: {rate:,.0f}/s in", flush=True
        )
    gc.collect()
    costs = await measure(url, worlds, batch)
    for name, cost in costs.items():
        print(
            f"{store:7} {name:>12}: opened in {cost.opening * 1e3:.0f} ms, "
            f"lease of {batch} {cost.leasing * 1e6:.0f} µs, settle {cost.settling * 1e6:.0f} µs"
        )
    return verdict(store, costs)


def verdict(store: str, costs: Mapping[str, Cost]) -> bool:
    total = {name: cost.leasing + cost.settling for name, cost in costs.items()}
    findings = [
        ("many requests against few", total["many"] / total["few"], 1.5),
        ("many lanes against 10", total["many lanes"] / total["few"], 2.0),
        ("opening, in seconds", max(cost.opening for cost in costs.values()), 1.0),
    ]
    for what, found, bound in findings:
        print(f"{store:7} {what}: {found:.2f} (bound {bound:g}){'' if found <= bound else ' OVER'}")
    return all(found <= bound for _, found, bound in findings)


@contextmanager
def store_url(store: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        redis = store == "redis"
        yield servers.enter_context(running_redis()) if redis else new_sqlite_url(folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="a tenth of everything")
    parser.add_argument("--store", choices=["sqlite", "redis"], action="append")
    parser.add_argument("--batch", type=int, default=10, help="how many to lease at once")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    print(describe(), flush=True)
    size = 10 if chosen.small else 1
    worlds = {
        "few": (10_000, 10),
        "many": (1_000_000 // size, 10),
        "many lanes": (300_000 // size, 100_000 // size),
    }
    passed = []
    for store in chosen.store or ["sqlite", "redis"]:
        with store_url(store) as url:
            passed.append(asyncio.run(run(url, store, worlds, chosen.batch)))
    raise SystemExit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
