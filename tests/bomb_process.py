"""A fetcher in a process of its own, for a site of bombs: what each cost, and what became of it.

``python -m tests.bomb_process CAP TIMEOUT BASE PATH…`` prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from data_fetcher_core.core import FetcherRecipe, FetchPlan, FetchRunContext, RequestMeta
from data_fetcher_core.events import Buried, Event, Fetched, Retried
from data_fetcher_core.fetcher import Fetcher
from data_fetcher_core.fetcher.breaker import BreakerOptions
from data_fetcher_core.fetcher.options import FetcherOptions
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.loader import HttpLoader, HttpOptions
from data_fetcher_core.queue import KVStoreQueue, QueueOptions, RequestMetaSerializer
from data_fetcher_core.recipes import SiteLocator
from data_fetcher_core.retry import FixedDelays

MIB = 1024 * 1024
RUN = "bombs"


def peak() -> float:
    """The most memory ever held, in MiB. What getrusage() tells begins with what a parent had."""
    told = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert told is not None
    return int(told[1]) / 1024


class Diary:
    """When each request was over, and how."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.seconds: list[float] = []
        self._began = time.monotonic()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Fetched | Buried | Retried):
            now = time.monotonic()
            self.events.append(event)
            self.seconds.append(now - self._began)
            self._began = now


async def fetched(store: MemoryStore, urls: list[str], cap: int, timeout: float) -> Diary:
    """One after another, each tried twice."""
    diary = Diary()
    loader = HttpLoader(HttpOptions(allow_private=True, max_size=cap * MIB, timeout=timeout))
    recipe = FetcherRecipe("bombs", [SiteLocator(urls)], loader)
    context = FetchRunContext(RUN, SimpleNamespace(kv_store=store, storage=None))
    queue = QueueOptions(max_attempts=2, retry=FixedDelays((0.0,)))
    # All are at one host, and only failures: it would be left alone for longer and longer.
    options = FetcherOptions(queue=queue, breaker=BreakerOptions(failures=0, share=2.0))
    await Fetcher(options, subscriber=diary).run(FetchPlan(recipe, context, 1))
    return diary


async def letters(store: MemoryStore) -> dict[str, str]:
    """The path of each that was given up, and why."""
    queue = KVStoreQueue(store, f"fetch:{RUN}", RequestMetaSerializer(), subscriber=lambda _: None)
    found = {}
    async for letter in queue.dead_letters():
        request: RequestMeta = letter.item
        last = letter.failures[-1].message if letter.failures else ""
        found[request.url.path] = f"{letter.reason}: {letter.detail}: {last}"
    await queue.close()
    return found


async def main(cap: int, timeout: float, base: str, *paths: str) -> dict[str, Any]:
    await fetched(MemoryStore(), [f"{base}/small"], cap, timeout)
    start = peak()
    store = MemoryStore()
    diary = await fetched(store, [f"{base}{path}" for path in paths], cap, timeout)
    return {
        "grown": peak() - start,
        "slowest": max(diary.seconds),
        "retried": sum(isinstance(event, Retried) for event in diary.events),
        "fetched": [event.url for event in diary.events if isinstance(event, Fetched)],
        "dead": await letters(store),
    }


if __name__ == "__main__":
    given_cap, given_timeout, *rest = sys.argv[1:]
    print(json.dumps(asyncio.run(main(int(given_cap), float(given_timeout), *rest))))
