"""A provider that is asked cursor by cursor, and never again for what it gave."""

from __future__ import annotations

import json
import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core.core import FetcherRecipe, FetchPlan, FetchRunContext, RequestMeta
from data_fetcher_core.fetcher import Fetcher
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.recipes import CursorLocator
from tests.properties import quick

CONTEXT = FetchRunContext("run")


class Provider:
    """Pages of requests, and how often each was asked for."""

    def __init__(self, pages: list[list[str]]) -> None:
        self.pages = pages
        self.asked: list[Any] = []

    async def ask(self, cursor: Any) -> tuple[list[RequestMeta], Any]:
        self.asked.append(cursor)
        number = cursor or 0
        following = number + 1 if number + 1 < len(self.pages) else None
        return [RequestMeta(url) for url in self.pages[number]], following


page_lists = st.lists(
    st.lists(st.sampled_from(["http://h/1", "http://h/2"]), max_size=3), min_size=1, max_size=12
)


@quick(100)
@given(page_lists, st.lists(st.booleans(), min_size=12, max_size=12))
async def test_a_provider_is_never_asked_again_for_what_it_gave(
    pages: list[list[str]], killed: list[bool]
) -> None:
    provider = Provider(pages)
    locator, kills = CursorLocator(provider.ask), iter(killed)
    given: list[str] = []
    while requests := await locator.get_next_urls(CONTEXT):
        given += [str(request.url) for request in requests if isinstance(request, RequestMeta)]
        if next(kills, False):
            state = json.loads(json.dumps(locator.checkpoint()))
            locator = CursorLocator(provider.ask)
            locator.restore(state)
    assert given == [url for page in pages for url in page]
    assert provider.asked == [None, *range(1, len(pages))]
    assert await locator.get_next_urls(CONTEXT) == []
    assert len(provider.asked) == len(pages)


async def test_a_provider_that_fails_is_asked_the_same_again() -> None:
    asked = []

    async def ask(cursor: Any) -> tuple[list[RequestMeta], Any]:
        asked.append(cursor)
        if len(asked) == 2:
            raise OSError("away")
        return [RequestMeta("http://h/")], "b" if cursor == "a" else None

    locator = CursorLocator(ask, start="a")
    assert len(await locator.get_next_urls(CONTEXT)) == 1
    with pytest.raises(OSError, match="away"):
        await locator.get_next_urls(CONTEXT)
    assert len(await locator.get_next_urls(CONTEXT)) == 1
    assert await locator.get_next_urls(CONTEXT) == []
    assert asked == ["a", "b", "b"]


@quick(50)
@given(st.integers(0, 20), st.integers(1, 20), st.booleans())
async def test_cursors_that_go_round_end(tail: int, circle: int, empty: bool) -> None:
    asked = []

    async def ask(cursor: int | None) -> tuple[list[RequestMeta], Any]:
        at = cursor or 0
        asked.append(at)
        following = at + 1 if at + 1 < tail + circle else tail
        return [] if empty else [RequestMeta(f"http://h/{at}")], following or None

    locator = CursorLocator(ask)
    while await locator.get_next_urls(CONTEXT):
        state = locator.checkpoint()
        locator = CursorLocator(ask)
        locator.restore(json.loads(json.dumps(state)))
    assert set(asked) == set(range(tail + circle))
    assert len(asked) <= 4 * (tail + circle)


async def test_going_round_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def ask(cursor: Any) -> tuple[list[RequestMeta], Any]:
        return [RequestMeta("http://h/")], "same"

    locator = CursorLocator(ask)
    with caplog.at_level(logging.WARNING):
        while await locator.get_next_urls(CONTEXT):
            pass
    assert "the cursor 'same' came before" in caplog.text


async def test_a_cursor_may_bring_more_than_one_step_takes() -> None:
    """The fetcher brings most of them early."""
    pages = [RequestMeta(f"http://h/{number}") for number in range(10_001)]

    async def ask(cursor: Any) -> tuple[list[RequestMeta], Any]:
        return pages, None

    asked = Asked()
    store = create_kv_store("memory")
    config = SimpleNamespace(kv_store=store, storage=None)
    recipe = FetcherRecipe("many", [CursorLocator(ask)], asked)
    result = await Fetcher().run(FetchPlan(recipe, FetchRunContext("many", config), 64))
    assert (result.is_finished, result.errors) == (True, [])
    assert asked.urls == {str(page.url): 1 for page in pages}


class Asked:
    def __init__(self) -> None:
        self.urls: Counter[str] = Counter()

    async def load(self, request: RequestMeta, *_: Any) -> bytes:
        self.urls[str(request.url)] += 1
        return b""
