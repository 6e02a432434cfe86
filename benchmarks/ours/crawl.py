"""What does it cost to be able to kill a crawl?

``minimal``: the fetcher with the loader of the bare loop: links by one regular expression, nothing
stored. ``whole``: the product as it comes: robots.txt, an HTML parser, canonical URLs, pages and
their index on disk. On SQLite or on Redis.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp

from benchmarks.crawling import LINK, Processed, contend
from benchmarks.loops import run_on
from benchmarks.ours.stores import store_url
from data_fetcher_core.core import FetcherRecipe, FetchPlan, FetchRunContext, RequestMeta
from data_fetcher_core.fetcher import Fetcher, FetcherOptions
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.loader import HttpLoader, HttpOptions
from data_fetcher_core.recipes import crawl_recipe
from data_fetcher_core.storage import FileStorage


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


async def minimal(address: str, store_url: str, concurrency: int = 64) -> int:
    """Crawl, keep nothing; how many pages were fetched."""
    crawler = Minimal(address)
    store = create_kv_store(store_url)
    context = FetchRunContext("minimal", SimpleNamespace(kv_store=store, storage=None))
    plan = FetchPlan(FetcherRecipe("minimal", [crawler], crawler), context, concurrency)
    result = await Fetcher().run(plan)
    await store.close()
    return result.processed_count


async def whole(address: str, store_url: str, folder: str, concurrency: int = 64) -> int:
    """Crawl into a folder; how many pages were fetched."""
    store, storage = create_kv_store(store_url), FileStorage(folder)
    options = HttpOptions(allow_private=True, follow_redirects=False)
    recipe = crawl_recipe([address + "/"], HttpLoader(options, kv_store=store))
    context = FetchRunContext("whole", SimpleNamespace(kv_store=store, storage=storage))
    result = await Fetcher(FetcherOptions()).run(FetchPlan(recipe, context, concurrency))
    await storage.close()
    await store.close()
    return result.processed_count


def run(given: dict[str, Any]) -> None:
    logging.disable(logging.WARNING)
    address, store, many = given["site_url"], store_url(given), given["concurrency"]
    minimally = given["how"] == "minimal"
    folder = str(_pages(given))
    work = minimal(address, store, many) if minimally else whole(address, store, folder, many)
    fetched = run_on(given["loop"], work)
    assert given.get("resumable") or fetched == given["pages"], f"fetched {fetched} pages"


def check(given: dict[str, Any]) -> None:
    """Every page has one line in the index; after a kill, they are the record."""
    if given["how"] == "minimal":
        return
    lines = (_pages(given) / "index.jsonl").read_text().splitlines()
    urls = [json.loads(line)["url"] for line in lines]
    assert len(urls) == len(set(urls)), "a page has two lines in the index"
    assert given.get("resumable") or len(urls) == given["pages"], f"{len(urls)} lines"
    record = Processed(given)
    for url in urls:
        record.add(url)


def _pages(given: dict[str, Any]) -> Path:
    return Path(given["folder"]) / "pages"


if __name__ == "__main__":
    contend("benchmarks.ours.crawl", run, check)
