"""Recipes and loaders of tests: what they are asked is written down, what they answer is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from data_fetcher_core.core import (
    FetcherRecipe,
    FetchPlan,
    FetchRunContext,
    Page,
    RequestMeta,
)
from data_fetcher_core.kv_store.base import KeyValueStore

Answer = Callable[[RequestMeta], Any | Awaitable[Any]]


def url(path: object, host: str = "host") -> str:
    return f"http://{host}.test/{path}"


def page(request: RequestMeta, **more: Any) -> Page:
    given = {"status": 200, "content_type": "text/html", "length": 3, "fetched_at": 1.0, **more}
    return Page(url=str(request.url), **given)


@dataclass
class FakeApi:
    """Pages of URLs, and how often each was asked for."""

    pages: Sequence[Sequence[str]]
    asked: Counter[int] = field(default_factory=Counter)

    async def ask(self, number: int) -> list[RequestMeta]:
        self.asked[number] += 1
        return [RequestMeta(u) for u in self.pages[number]] if number < len(self.pages) else []


class ApiLocator:
    """Asks a provider page by page, and can go on in the middle."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.cursor = 0

    async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
        found = await self.api.ask(self.cursor)
        self.cursor += 1
        return found

    def checkpoint(self) -> int:
        return self.cursor

    def restore(self, state: int) -> None:
        self.cursor = state


class ListLocator:
    """Gives all it has at once, and cannot tell where it stands."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.batches: list[list[RequestMeta]] = [[RequestMeta(u) for u in urls]]

    async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
        return self.batches.pop() if self.batches else []


class Loader:
    """Answers with a page, or as it is told."""

    def __init__(self, answer: Answer = page) -> None:
        self.answer = answer
        self.asked: Counter[str] = Counter()
        self.closed = 0

    async def load(
        self, request: RequestMeta, storage: Any, ctx: FetchRunContext, recipe: FetcherRecipe
    ) -> list[Any]:
        self.asked[str(request.url)] += 1
        found = self.answer(request)
        return [await found if isinstance(found, Awaitable) else found]

    async def close(self) -> None:
        self.closed += 1


def plan_of(
    store: KeyValueStore,
    locators: Sequence[Any],
    loader: Any,
    *,
    run_id: str = "test",
    storage: Any = None,
    concurrency: int = 4,
    target_queue_size: int = 100,
) -> FetchPlan:
    config = SimpleNamespace(kv_store=store, storage=storage)
    return FetchPlan(
        FetcherRecipe("recipe", locators, loader),
        FetchRunContext(run_id, config),
        concurrency,
        target_queue_size,
    )
