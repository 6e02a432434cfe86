"""What does it cost to be able to kill a crawl?

Crawls one site on loopback in turn with a bare aiohttp loop over an ``asyncio.Queue``, which
loses everything when it dies; with the fetcher and the same minimal loader (links by one regular
expression, nothing stored), on SQLite and on Redis; and with the whole product (robots.txt, HTML
parser, canonical URLs, pages and index on disk). Each in a process of its own, round after round.
Prints pages a second and their share of the bare loop; exits with 1 below 0.65 and 0.35.

    python -m benchmarks.crawl [--pages 20000] [--rounds 3] [--only minimal-sqlite]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp

from benchmarks.machine import describe
from benchmarks.servers import new_sqlite_url, running_redis
from benchmarks.site import site
from data_fetcher_core.core import FetcherRecipe, FetchPlan, FetchRunContext, RequestMeta
from data_fetcher_core.fetcher import Fetcher, FetcherOptions
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.loader import HttpLoader, HttpOptions
from data_fetcher_core.recipes import crawl_recipe
from data_fetcher_core.storage import FileStorage

CONCURRENCY = 64
LINK = re.compile(rb'href="([^"]+)"')
BOUNDS = {"minimal-sqlite": 0.65, "minimal-redis": 0.65, "whole-sqlite": 0.35, "whole-redis": 0.35}


# --- the bare loop -----------------------------------------------------------------------------


async def bare(address: str, _: str, __: str) -> int:
    queue: asyncio.Queue[str] = asyncio.Queue()
    seen = {"/"}
    queue.put_nowait("/")

    async def work(session: aiohttp.ClientSession) -> None:
        while True:
            path = await queue.get()
            async with session.get(address + path) as response:
                body = await response.read()
            for link in LINK.findall(body):
                if (found := link.decode()) not in seen:
                    seen.add(found)
                    queue.put_nowait(found)
            queue.task_done()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        workers = [asyncio.create_task(work(session)) for _ in range(CONCURRENCY)]
        await queue.join()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return len(seen)


# --- the fetcher, with the same loader ---------------------------------------------------------


class Minimal:
    """A loader and a locator in one: the same few lines as the bare loop."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._start = [RequestMeta(address + "/")]
        self._session: aiohttp.ClientSession | None = None

    async def load(
        self, request: RequestMeta, storage: Any, ctx: FetchRunContext, recipe: FetcherRecipe
    ) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        async with self._session.get(request.url) as response:
            return await response.read()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
        start, self._start = self._start, []
        return start

    async def handle_url_processed(
        self, request: RequestMeta, body: bytes, ctx: FetchRunContext
    ) -> list[RequestMeta]:
        depth = request.depth + 1
        return [RequestMeta(self._address + link.decode(), depth) for link in LINK.findall(body)]


async def minimal(address: str, store_url: str, _: str) -> int:
    crawler = Minimal(address)
    store = create_kv_store(store_url)
    context = FetchRunContext("minimal", SimpleNamespace(kv_store=store, storage=None))
    plan = FetchPlan(FetcherRecipe("minimal", [crawler], crawler), context, CONCURRENCY)
    result = await Fetcher().run(plan)
    await store.close()
    return result.processed_count


async def whole(address: str, store_url: str, folder: str) -> int:
    store, storage = create_kv_store(store_url), FileStorage(folder)
    options = HttpOptions(allow_private=True, follow_redirects=False)
    recipe = crawl_recipe([address + "/"], HttpLoader(options, kv_store=store))
    context = FetchRunContext("whole", SimpleNamespace(kv_store=store, storage=storage))
    result = await Fetcher(FetcherOptions()).run(FetchPlan(recipe, context, CONCURRENCY))
    await storage.close()
    await store.close()
    lines = await asyncio.to_thread((Path(folder) / "index.jsonl").read_bytes)
    assert lines.count(b"\n") == result.processed_count, "the index is not complete"
    return result.processed_count


# --- taking turns ------------------------------------------------------------------------------

KINDS = {
    "bare": (bare, ""),
    "minimal-sqlite": (minimal, "sqlite"),
    "minimal-redis": (minimal, "redis"),
    "whole-sqlite": (whole, "sqlite"),
    "whole-redis": (whole, "redis"),
}


def measure_here(kind: str, address: str, pages: int, redis_url: str) -> float:
    """Pages a second, measured in this process."""
    run, store = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        url = redis_url if store == "redis" else new_sqlite_url(folder)
        begin = time.perf_counter()
        fetched = asyncio.run(run(address, url, f"{folder}/pages"))
        seconds = time.perf_counter() - begin
    assert fetched == pages, f"{kind} fetched {fetched} of {pages} pages"
    return pages / seconds


def measure(kind: str, address: str, pages: int) -> float:
    """The same in a process of its own, with an empty Redis where it needs one."""
    with running_redis() as redis_url:
        command = [sys.executable, "-m", "benchmarks.crawl", "--here", kind, address, redis_url]
        done = subprocess.run(
            [*command, "--pages", str(pages)], stdout=subprocess.PIPE, check=True, timeout=600
        )
    return float(done.stdout)


def compare(kinds: list[str], pages: int, rounds: int) -> int:
    print(describe(), f"\n{pages:,} pages, {CONCURRENCY} at a time", flush=True)
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    with site(pages) as address:
        for number in range(rounds):
            for kind in kinds:
                found[kind].append(measure(kind, address, pages))
                print(f"round {number + 1}: {kind:15} {found[kind][-1]:>7,.0f} pages/s", flush=True)
    limit = statistics.median(found["bare"])
    short = 0
    for kind in kinds:
        rate, spread = statistics.median(found[kind]), max(found[kind]) - min(found[kind])
        bound = BOUNDS.get(kind, 0.0)
        short += rate / limit < bound
        told = f"{kind:15} {rate:>7,.0f} pages/s (spread {spread:,.0f})  {rate / limit:.2f}"
        print(told + (f" of the bare loop, to be {bound} or more" if bound else ""), flush=True)
    return 1 if short else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=sorted(BOUNDS), action="append")
    parser.add_argument("--here", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    if chosen.here:
        kind, address, redis_url = chosen.here
        print(measure_here(kind, address, chosen.pages, redis_url))
        return 0
    return compare(["bare", *(chosen.only or BOUNDS)], chosen.pages, chosen.rounds)


if __name__ == "__main__":
    raise SystemExit(main())
