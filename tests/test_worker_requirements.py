"""What docs/requirements.md asks of workers and breakers and no other test shows on its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from data_fetcher_core.core import FetchPlan, RequestMeta
from data_fetcher_core.errors import FetchError
from data_fetcher_core.events import Buried, Event, Fetched, LaneShut, Retried
from data_fetcher_core.fetcher import BreakerOptions, Fetcher, FetcherOptions, Stop
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import KVStoreQueue, QueueOptions, RequestMetaSerializer
from data_fetcher_core.retry import FixedDelays
from data_fetcher_core.testing import ManualClock
from tests.conftest import OpenStore
from tests.fetching import ListLocator, Loader, page, plan_of, url
from tests.harness import foreign_tasks, letters
from tests.virtual import in_virtual_time

SOON = FixedDelays((0.01,))


@pytest.fixture
def store(open_store: OpenStore) -> KeyValueStore:
    return open_store()


def fetcher(told: list[Event] | None = None, **options: Any) -> Fetcher:
    queue = QueueOptions(retry=SOON, **options.pop("queue", {}))
    tell = (lambda _: None) if told is None else told.append
    return Fetcher(FetcherOptions(queue=queue, **options), subscriber=tell)


def queue_of(store: KeyValueStore) -> KVStoreQueue:
    return KVStoreQueue(store, "fetch:test", RequestMetaSerializer(), subscriber=lambda _: None)


# --- workers -----------------------------------------------------------------------------------


async def test_one_worker_is_enough_and_works_in_order(store: KeyValueStore) -> None:
    given = plan_of(store, [ListLocator([url(n) for n in range(9)])], loader := Loader())
    plan = FetchPlan(given.recipe, given.context)
    assert plan.concurrency == 1
    result = await fetcher().run(plan)
    assert (result.processed_count, result.is_finished) == (9, True)
    assert list(loader.asked) == [url(n) for n in range(9)]


async def test_a_worker_waits_for_what_is_due_later_and_not_longer() -> None:
    """In virtual time: nothing is ready for a minute, and nobody polls meanwhile."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    begun: list[float] = []

    def answer(request: RequestMeta) -> Any:
        begun.append(clock.monotonic())
        if len(begun) == 1:
            raise FetchError("503")
        return page(request)

    options = FetcherOptions(queue=QueueOptions(retry=FixedDelays((60.0,))))
    run = Fetcher(options, clock=clock, subscriber=lambda _: None).run(
        plan_of(store, [ListLocator([url(1)])], Loader(answer))
    )
    (result,) = await in_virtual_time(clock, run)
    assert result.is_finished
    assert begun[1] - begun[0] == pytest.approx(60.0, abs=0.01)


@pytest.mark.parametrize(
    "error", [ValueError("no sense"), KeyError("price"), AssertionError(), RecursionError("deep")]
)
async def test_whatever_a_loader_raises_is_caught_logged_and_kept(
    store: KeyValueStore, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(request: RequestMeta) -> Any:
        if request.url.path == "/bad":
            raise error
        return page(request)

    told: list[Event] = []
    urls = [url(path) for path in ("bad", "good", "fine")]
    run = fetcher(told, queue={"max_attempts": 2})
    with caplog.at_level(logging.WARNING, "data_fetcher_core.fetcher"):
        result = await run.run(plan_of(store, [ListLocator(urls)], Loader(answer)))
    assert (result.stats.completed, result.stats.dead) == (2, 1)
    (told_error,) = result.errors
    assert told_error.startswith(url("bad"))
    (letter,) = await letters(queue_of(store))
    assert {failure.kind for failure in letter.failures} == {type(error).__name__}
    assert sum(isinstance(event, Retried) for event in told) == 1
    assert sum(isinstance(event, Buried) for event in told) == 1
    logged = [record for record in caplog.records if record.exc_info]
    assert [record.exc_info[1] for record in logged if record.exc_info] == [error, error]


async def test_what_a_request_opens_is_closed_with_it_however_it_ends(
    store: KeyValueStore,
) -> None:
    opened = ended = 0

    @asynccontextmanager
    async def session() -> AsyncIterator[None]:
        nonlocal opened, ended
        opened += 1
        try:
            yield
        finally:
            ended += 1

    async def answer(request: RequestMeta) -> Any:
        async with session():
            if request.url.path == "/fails":
                raise FetchError("503")
            if request.url.path == "/hangs":
                await asyncio.sleep(600)
            return page(request)

    urls = [url(path) for path in ("fails", "hangs", "good")]
    run = fetcher(request_timeout=0.1, queue={"max_attempts": 2})
    result = await run.run(plan_of(store, [ListLocator(urls)], Loader(answer)))
    assert (result.stats.completed, result.stats.dead) == (1, 2)
    assert opened == ended == 5


async def test_after_a_run_its_queue_is_closed(store: KeyValueStore) -> None:
    """No task of it is left, nothing is leased, and the store is still open."""
    before = asyncio.all_tasks()
    stop = Stop()
    stop.ask()
    plan = plan_of(store, [ListLocator([url(n) for n in range(5)])], Loader())
    await fetcher().run(plan, stop)
    await fetcher().run(plan)
    await asyncio.sleep(0)
    assert foreign_tasks(before) == set()
    await store.put("still", "open")
    queue = queue_of(store)
    assert (await queue.stats()).leased == 0
    await queue.close()


async def test_one_fetcher_runs_several_plans_at_once(open_store: OpenStore) -> None:
    store, run = open_store(), fetcher()
    loaders = {name: Loader() for name in "abc"}
    plans = [
        plan_of(store, [ListLocator([url(n, name) for n in range(9)])], loader, run_id=name)
        for name, loader in loaders.items()
    ]
    results = await asyncio.gather(*(run.run(plan) for plan in plans))
    assert [(result.context.run_id, result.processed_count) for result in results] == [
        ("a", 9),
        ("b", 9),
        ("c", 9),
    ]
    for name, loader in loaders.items():
        assert set(loader.asked) == {url(n, name) for n in range(9)}


async def test_what_a_result_says(store: KeyValueStore) -> None:
    """This call's pages and errors, and the whole run's counts."""
    stop = Stop()

    def answer(request: RequestMeta) -> Any:
        stop.ask()
        raise FetchError("no such thing", retryable=False)

    plan = plan_of(store, [ListLocator([url(1)])], Loader(answer))
    failed = await fetcher().run(plan, stop)
    assert failed.errors == [f"{url(1)}: no such thing"]
    assert (failed.processed_count, failed.stats.dead) == (1, 1)
    again = await fetcher().run(plan_of(store, [ListLocator([url(2)])], Loader()))
    assert again.context.run_id == "test"
    assert (again.errors, again.stats.dead) == ([], 1)


# --- the breaker -------------------------------------------------------------------------------


async def test_rate_limits_count_as_failures_and_open_the_breaker() -> None:
    clock = ManualClock()
    begun: list[float] = []
    told: list[Event] = []

    def answer(request: RequestMeta) -> Any:
        begun.append(clock.monotonic())
        if len(begun) <= 3:
            raise FetchError("429 Too Many Requests", retry_after=0.1)
        return page(request)

    options = FetcherOptions(
        queue=QueueOptions(retry=FixedDelays((0.01,))), breaker=BreakerOptions(failures=3)
    )
    run = Fetcher(options, clock=clock, subscriber=told.append).run(
        plan_of(
            MemoryStore(clock=clock),
            [ListLocator([url(n) for n in range(5)])],
            Loader(answer),
            concurrency=1,
        )
    )
    (result,) = await in_virtual_time(clock, run)
    assert result.stats.completed == 5
    shut = [event.duration for event in told if isinstance(event, LaneShut)]
    assert [round(duration, 1) for duration in shut] == [0.1, 0.1, 0.1, 5.0]
    assert begun[3] - begun[2] == pytest.approx(5.0, abs=0.2)
    assert sum(isinstance(event, Fetched) for event in told) == 5
