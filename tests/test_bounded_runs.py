"""Runs whose queue has a capacity: it binds what comes from outside, never what is under way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from data_fetcher_core.core import FetchRunContext, RequestMeta
from data_fetcher_core.fetcher import Fetcher, FetcherOptions, Stop
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.queue import QueueOptions
from tests.conftest import OpenStore
from tests.fetching import ListLocator, Loader, page, plan_of, url

CAPACITY = 10


@pytest.fixture
def store(open_store: OpenStore) -> KeyValueStore:
    return open_store()


def fetcher(on_full: Any = "wait") -> Fetcher:
    queue = QueueOptions(capacity=CAPACITY, on_full=on_full)
    return Fetcher(FetcherOptions(queue=queue), subscriber=lambda _: None)


class Links(ListLocator):
    """Every first page has so many links."""

    def __init__(self, urls: list[str], links: int) -> None:
        super().__init__(urls)
        self.links = links

    async def handle_url_processed(
        self, request: RequestMeta, result: Any, ctx: FetchRunContext
    ) -> list[RequestMeta]:
        if request.depth:
            return []
        return [RequestMeta(url(n, f"h{n % 99}"), 1) for n in range(self.links)]


class Another(ListLocator):
    """One that the recipe had not before."""


def stopping_at(depth: int, stop: Stop) -> Loader:
    def answer(request: RequestMeta) -> Any:
        if request.depth == depth:
            stop.ask()
        return page(request)

    return Loader(answer)


async def test_more_links_than_one_step_takes_enter_a_full_queue(store: KeyValueStore) -> None:
    """The only worker would wait for room that nobody else makes."""
    stop, links = Stop(), 10_000 + 5 * CAPACITY
    plan = plan_of(store, [Links([url("x")], links)], stopping_at(1, stop), concurrency=1)
    async with asyncio.timeout(20):
        result = await fetcher().run(plan, stop)
    assert (result.stats.retried, result.stats.dead) == (0, 0)
    # The turn of the locator, the page, and its links.
    assert result.stats.enqueued == 1 + 1 + links


async def test_a_turn_that_brings_more_than_one_step_takes_enters_a_full_queue(
    store: KeyValueStore,
) -> None:
    stop, many = Stop(), 10_000 + 5 * CAPACITY
    urls = [url(n, f"h{n % 99}") for n in range(many)]
    plan = plan_of(store, [ListLocator(urls)], stopping_at(0, stop))
    async with asyncio.timeout(20):
        result = await fetcher("raise").run(plan, stop)
    assert (result.stats.retried, result.stats.dead) == (0, 0)
    assert result.stats.enqueued == 1 + many


async def test_one_more_locator_is_registered_while_the_queue_is_full(
    store: KeyValueStore,
) -> None:
    """Room is made by workers, and there are none before it is registered."""
    stop, links = Stop(), 5 * CAPACITY
    plan = plan_of(store, [Links([url("x")], links)], stopping_at(1, stop), concurrency=1)
    result = await fetcher().run(plan, stop)
    assert result.stats.ready > CAPACITY
    more = [Links([], links), Another([url("another")])]
    async with asyncio.timeout(20):
        result = await fetcher().run(plan_of(store, more, Loader()))
    assert (result.stats.completed, result.is_finished) == (1 + links + 1, True)
