"""What a simulated run fetches, and where it puts it. It outlives all processes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from data_fetcher_core.core import FetcherRecipe, FetchRunContext, Page, RequestMeta
from data_fetcher_core.errors import FetchError, StorageError
from tests.fetching import url
from tests.histories import DONE, UNKNOWN, Recorder
from tests.simulation.process import Process

PAGES, TOLD_AT_ONCE = 40, 4


class Site:
    """Half of the pages are told by a provider, each of the others is linked to by one page."""

    def __init__(self, chance: random.Random, pages: int = PAGES) -> None:
        names = [url(number, host="abc"[number % 3]) for number in range(pages)]
        half = (pages + 1) // 2
        self.told = [names[at:half][:TOLD_AT_ONCE] for at in range(0, half, TOLD_AT_ONCE)]
        self.links: dict[str, list[str]] = {name: [] for name in names}
        for at in range(half, pages):
            self.links[names[chance.randrange(at)]].append(names[at])
        self.flaky = set(chance.sample(names, k=pages // 10))
        self.loads: Counter[str] = Counter()
        self.asked: Counter[int] = Counter()

    @property
    def pages(self) -> list[str]:
        return list(self.links)


class SiteLocator:
    """Asks the provider page by page, and follows links."""

    def __init__(self, site: Site, process: Process, recorder: Recorder) -> None:
        self._site = site
        self._process = process
        self._recorder = recorder
        self._cursor = 0

    async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
        cursor = self._cursor
        self._site.asked[cursor] += 1
        number = self._recorder.begin("ask", self._process.name, request=f"provider {cursor}")
        await self._process.clock.sleep(0.02)
        self._recorder.end(number, DONE)
        self._cursor += 1
        told = self._site.told[cursor] if cursor < len(self._site.told) else []
        return [RequestMeta(name) for name in told]

    async def handle_url_processed(
        self, request: RequestMeta, result: Any, ctx: FetchRunContext
    ) -> list[RequestMeta]:
        return [RequestMeta(name) for name in self._site.links[str(request.url)]]

    def checkpoint(self) -> int:
        return self._cursor

    def restore(self, state: int) -> None:
        self._cursor = state


class SiteLoader:
    """Takes its time, and now and then an answer fails."""

    def __init__(
        self, site: Site, process: Process, recorder: Recorder, chance: random.Random
    ) -> None:
        self._site = site
        self._process = process
        self._recorder = recorder
        self._chance = chance

    async def load(
        self, request: RequestMeta, storage: Any, ctx: FetchRunContext, recipe: FetcherRecipe
    ) -> list[Page]:
        name = str(request.url)
        self._site.loads[name] += 1
        number = self._recorder.begin("load", self._process.name, request=name)
        await self._process.clock.sleep(self._chance.choice((0.01, 0.1, 0.5)))
        if name in self._site.flaky:
            self._site.flaky.discard(name)
            self._recorder.end(number, UNKNOWN)
            raise FetchError("an answer that failed", retryable=True)
        self._recorder.end(number, DONE)
        return [Page(name, 200, "text/html", 3, 1.0)]


class SharedIndex:
    """A storage that all processes share: each number is written once."""

    def __init__(self) -> None:
        self.birth = ""
        self.lines: dict[int, Mapping[str, Any]] = {}

    async def bind(self, birth: str) -> None:
        await asyncio.sleep(0.01)
        if self.birth not in {"", birth}:
            raise StorageError(f"belongs to {self.birth}, not to {birth}")
        self.birth = birth

    async def append_index(self, entries: Sequence[tuple[int, Mapping[str, Any]]]) -> int:
        await asyncio.sleep(0.01)
        for number, line in entries:
            self.lines.setdefault(number, line)
        return max(self.lines, default=0)

    async def finish_index(self, entries: Sequence[tuple[int, Mapping[str, Any]]]) -> int:
        return await self.append_index(entries)
