"""What does a page cost beyond its download?

Crawls a site that is a dictionary: the fetcher, its queue and its store with everything but the
network, each in a process of its own. Prints microseconds a page: on the clock, of CPU in all
threads, of CPU on the event loop, and of CPU in the Redis server; the least of all rounds, since
neighbours only add.

    python -m benchmarks.overhead [--pages 10000] [--rounds 5] [--store memory|sqlite|redis]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace
from typing import Any

from benchmarks.contract import redis_info
from benchmarks.crawling import LINK
from benchmarks.machine import describe
from benchmarks.servers import new_sqlite_url, running_redis
from benchmarks.site import page
from data_fetcher_core.core import FetcherRecipe, FetchPlan, FetchRunContext, RequestMeta
from data_fetcher_core.fetcher import Fetcher
from data_fetcher_core.kv_store import create_kv_store

STORES = ("memory", "sqlite", "redis")
ADDRESS = "http://127.0.0.1:8000"
CONCURRENCY = 64
LINKS = 10


class Dictionary:
    """A loader and a locator over pages in memory."""

    def __init__(self, pages: int) -> None:
        self._bodies = {_path(number): page(number, pages, LINKS) for number in range(pages)}
        self._start = [RequestMeta(ADDRESS + "/")]

    async def load(self, request: RequestMeta, *_: Any) -> bytes:
        await asyncio.sleep(0)
        return self._bodies[request.url.path]

    async def get_next_urls(self, _: FetchRunContext) -> list[RequestMeta]:
        start, self._start = self._start, []
        return start

    async def handle_url_processed(
        self, request: RequestMeta, body: bytes, _: FetchRunContext
    ) -> list[RequestMeta]:
        return [RequestMeta(ADDRESS + link.decode()) for link in LINK.findall(body)]


def _path(number: int) -> str:
    return f"/page/{number}" if number else "/"


async def crawl(url: str, redis_url: str, pages: int) -> dict[str, float]:
    site, store = Dictionary(pages), create_kv_store(url)
    context = FetchRunContext("overhead", SimpleNamespace(kv_store=store, storage=None))
    plan = FetchPlan(FetcherRecipe("overhead", [site], site), context, CONCURRENCY)
    began = spent(redis_url)
    result = await Fetcher().run(plan)
    ended = spent(redis_url)
    await store.close()
    assert result.processed_count == pages, result
    return {name: (ended[name] - began[name]) * 1e6 / pages for name in began}


def spent(redis_url: str) -> dict[str, float]:
    """Seconds until now."""
    server = redis_info(redis_url)
    return {
        "clock": time.perf_counter(),
        "cpu": time.process_time(),
        "loop": time.thread_time(),
        "server": float(server["used_cpu_user"]) + float(server["used_cpu_sys"]),
    }


def measure_here(store: str, pages: int) -> None:
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder, running_redis() as redis_url:
        urls = {"memory": "memory://", "sqlite": new_sqlite_url(folder), "redis": redis_url}
        print(json.dumps(asyncio.run(crawl(urls[store], redis_url, pages))))


def measure(store: str, pages: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.overhead", "--here", "--store", store]
    done = subprocess.run(
        [*command, "--pages", str(pages)], stdout=subprocess.PIPE, check=True, timeout=600
    )
    told: dict[str, float] = json.loads(done.stdout)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", choices=STORES, action="append")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.here:
        measure_here(chosen.store[0], chosen.pages)
        return
    print(describe(), flush=True)
    for store in chosen.store or STORES:
        rounds = [measure(store, chosen.pages) for _ in range(chosen.rounds)]
        least = {name: min(one[name] for one in rounds) for name in rounds[0]}
        print(
            f"{store:7} {least['clock']:4.0f} µs a page: {least['cpu']:4.0f} of CPU, "
            f"{least['loop']:4.0f} of it on the loop; {least['server']:4.0f} in the Redis server",
            flush=True,
        )


if __name__ == "__main__":
    main()
