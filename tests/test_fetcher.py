"""A run as its users see it: what is asked for once, what is tried again, what is given up."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from data_fetcher_core import Entry, RequestMeta
from data_fetcher_core.core import FetcherRecipe, FetchPlan, FetchRunContext, Priority
from data_fetcher_core.errors import (
    ConfigurationError,
    FetchError,
    Postponed,
    Skipped,
    StorageError,
    StorageFull,
    StoreFull,
    StoreUnavailable,
    ValidationError,
)
from data_fetcher_core.events import Event, Fed, Fetched, GoesOn, LaneShut, NotFetched, Paused
from data_fetcher_core.fetcher import Fetcher, FetcherOptions, FetchResult, Stop
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import KVStoreQueue, QueueOptions, RequestMetaSerializer
from data_fetcher_core.retry import FixedDelays
from data_fetcher_core.storage import FileStorage
from tests.conftest import OpenStore
from tests.fetching import Answer, ApiLocator, FakeApi, ListLocator, Loader, page, plan_of, url
from tests.harness import accounted, eventually, letters

SOON = FixedDelays((0.01,))


@pytest.fixture
def store(open_store: OpenStore) -> KeyValueStore:
    return open_store()


def fetcher(told: list[Event] | None = None, **options: Any) -> Fetcher:
    queue = QueueOptions(retry=SOON, **options.pop("queue", {}))
    tell = (lambda _: None) if told is None else told.append
    return Fetcher(FetcherOptions(queue=queue, **options), subscriber=tell)


def queue_of(store: KeyValueStore, run_id: str = "test") -> KVStoreQueue:
    return KVStoreQueue(
        store, f"fetch:{run_id}", RequestMetaSerializer(), subscriber=lambda _: None
    )


def stopping(stop: Stop) -> Answer:
    """Asks for a stop with every answer."""

    def answer(request: RequestMeta) -> Any:
        stop.ask()
        return page(request)

    return answer


# --- the whole path ----------------------------------------------------------------------------


async def test_everything_is_fetched_once_and_the_store_agrees(store: KeyValueStore) -> None:
    api = FakeApi([[url(f"{p}/{n}", f"h{n % 3}") for n in range(20)] for p in range(5)])
    loader = Loader()
    result = await fetcher().run(plan_of(store, [ApiLocator(api)], loader))
    assert isinstance(result, FetchResult)
    assert (result.processed_count, result.errors, result.is_finished) == (100, [], True)
    assert set(loader.asked.values()) == {1}
    assert len(loader.asked) == 100
    stats = await accounted(queue_of(store))
    assert (stats.completed, stats.dead, stats.size, stats.leased) == (100, 0, 0, 0)
    assert result.stats.completed == result.processed_count
    assert loader.closed == 1


async def test_links_enter_with_the_page_that_has_them(store: KeyValueStore) -> None:
    class Links(ListLocator):
        async def handle_url_processed(
            self, request: RequestMeta, result: Any, ctx: FetchRunContext
        ) -> list[RequestMeta]:
            if request.depth == 3:
                return []
            return [RequestMeta(f"{request.url}{n}", request.depth + 1) for n in range(3)]

    loader = Loader()
    result = await fetcher().run(plan_of(store, [Links([url("x")])], loader))
    assert result.processed_count == 1 + 3 + 9 + 27
    assert set(loader.asked.values()) == {1}


async def test_a_finished_run_asks_for_nothing_more(store: KeyValueStore) -> None:
    api = FakeApi([[url(1)], [url(2)]])
    await fetcher().run(plan_of(store, [ApiLocator(api)], Loader()))
    again = Loader()
    result = await fetcher().run(plan_of(store, [ApiLocator(api)], again))
    assert (result.processed_count, result.is_finished, again.asked) == (0, True, {})
    assert set(api.asked.values()) == {1}


async def test_lane_and_key_are_the_host_and_the_page(store: KeyValueStore) -> None:
    given = [
        RequestMeta("http://a.test/x"),
        RequestMeta("http://a.test:80/x#part"),
        RequestMeta("http://a.test:8080/x"),
        Entry(RequestMeta("http://a.test/x"), key="other", priority=Priority.HIGH),
        Entry(RequestMeta("http://b.test/y"), key="k", lane="own"),
    ]
    locator = ListLocator([])
    locator.batches = [given]  # type: ignore[list-item]
    told: list[Event] = []
    result = await fetcher(told).run(plan_of(store, [locator], Loader()))
    assert result.processed_count == 4
    lanes = sorted(event.lane for event in told if isinstance(event, Fetched))
    assert lanes == ["a.test", "a.test", "a.test:8080", "own"]


async def test_several_locators_and_one_that_gives_very_much(store: KeyValueStore) -> None:
    many = ListLocator([url(n, f"h{n % 50}") for n in range(12_000)])
    few = ApiLocator(FakeApi([[url("a")], [url("b")]]))
    told: list[Event] = []
    plan = plan_of(store, [many, few], Loader(), concurrency=100)
    result = await fetcher(told).run(plan)
    assert result.processed_count == 12_002
    fed = [event for event in told if isinstance(event, Fed)]
    assert sorted(event.new for event in fed) == [0, 0, 1, 1, 12_000]


async def test_a_bound_on_pages_is_exact(store: KeyValueStore) -> None:
    api = FakeApi([[url(f"{p}/{n}") for n in range(10)] for p in range(3)])
    plan = plan_of(store, [ApiLocator(api)], Loader())
    result = await fetcher(max_pages=17).run(plan)
    assert (result.processed_count, result.is_finished) == (17, True)


class Endless:
    """Has ten more each time, far beyond what any bound here lets in."""

    def __init__(self) -> None:
        self.asked = 0

    async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
        self.asked += 1
        return [RequestMeta(url(f"{self.asked}/{n}")) for n in range(10 if self.asked < 99 else 0)]

    def checkpoint(self) -> int:
        return self.asked

    def restore(self, state: int) -> None:
        self.asked = state


async def test_a_provider_without_end_is_left_alone_once_the_bound_is_reached(
    store: KeyValueStore,
) -> None:
    """By processes that were not told the bound, too; and asked on when it is raised."""
    first, helper, later = Endless(), Endless(), Endless()
    result = await fetcher(max_pages=25).run(plan_of(store, [first], Loader()))
    assert (result.processed_count, result.is_finished) == (25, True)
    assert first.asked == 3
    result = await fetcher().run(plan_of(store, [helper], Loader()))
    assert (result.processed_count, result.is_finished, helper.asked) == (0, True, 0)
    result = await fetcher(max_pages=40).run(plan_of(store, [later], Loader()))
    assert (result.processed_count, result.is_finished, later.asked) == (15, True, 5)


async def test_the_plan_of_the_specification(open_store: OpenStore) -> None:
    """Mocks answer every attribute, and must not be taken for more than they are."""
    locator, loader, config = AsyncMock(), AsyncMock(), Mock()
    locator.get_next_urls.side_effect = [[RequestMeta(url(n)) for n in range(3)], []]
    loader.load.return_value = [Mock()]
    config.kv_store = open_store()
    context = FetchRunContext(run_id="spec", app_config=config)
    recipe = FetcherRecipe(recipe_id="r", bundle_locators=[locator], bundle_loader=loader)
    plan = FetchPlan(recipe=recipe, context=context, concurrency=4, target_queue_size=100)
    result = await Fetcher().run(plan)
    assert (result.processed_count, result.errors, result.context) == (3, [], context)
    assert loader.load.await_count == 3
    assert locator.handle_url_processed.await_count == 3
    request, storage, ctx, given = loader.load.await_args.args
    assert (type(request), storage, ctx, given) == (RequestMeta, config.storage, context, recipe)


# --- what cannot be run ------------------------------------------------------------------------


@pytest.mark.parametrize("config", [None, Mock(spec=[]), Mock(kv_store=None)])
async def test_a_store_is_required(config: Any) -> None:
    recipe = FetcherRecipe("r", [], Loader())
    with pytest.raises(ConfigurationError, match="kv_store is required for persistent queue"):
        await Fetcher().run(FetchPlan(recipe, FetchRunContext("x", config)))


@pytest.mark.parametrize("value", [0, -1, True, "5", None, 1.5])
@pytest.mark.parametrize("name", ["concurrency", "target_queue_size"])
async def test_a_plan_that_cannot_be(name: str, value: Any) -> None:
    plan = plan_of(MemoryStore(), [], Loader(), **{name: value})
    with pytest.raises(ValidationError, match=name):
        await Fetcher().run(plan)


@pytest.mark.parametrize("name", ["request_timeout", "locator_timeout", "grace", "max_pages"])
@pytest.mark.parametrize("value", [-1, True, "5", None, float("nan"), float("inf")])
def test_an_option_that_cannot_be(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        FetcherOptions(**{name: value})


# --- failures ----------------------------------------------------------------------------------


class Failing:
    """Fails so many times, then answers."""

    def __init__(self, times: int, error: Exception) -> None:
        self.times = times
        self.error = error

    def __call__(self, request: RequestMeta) -> Any:
        self.times -= 1
        if self.times >= 0:
            raise self.error
        return page(request)


async def test_a_failure_is_tried_again(store: KeyValueStore) -> None:
    loader = Loader(Failing(3, FetchError("503")))
    result = await fetcher().run(plan_of(store, [ListLocator([url(1)])], loader))
    assert (result.processed_count, result.errors, loader.asked[url(1)]) == (1, [], 4)
    assert (await accounted(queue_of(store))).retried == 3


@pytest.mark.parametrize("error", [FetchError("503"), RuntimeError("a bug"), TimeoutError("late")])
async def test_what_fails_for_good_is_a_dead_letter_with_its_history(
    store: KeyValueStore, error: Exception
) -> None:
    loader = Loader(Failing(99, error))
    result = await fetcher().run(plan_of(store, [ListLocator([url(1)])], loader))
    (letter,) = await letters(queue_of(store))
    assert (letter.item.url, letter.attempts, len(letter.failures)) == (
        RequestMeta(url(1)).url,
        4,
        4,
    )
    assert result.is_finished
    (told,) = result.errors
    assert url(1) in told
    assert result.stats.dead == 1


async def test_what_is_hopeless_is_not_tried_again(store: KeyValueStore) -> None:
    loader = Loader(Failing(99, FetchError("too large", retryable=False)))
    await fetcher().run(plan_of(store, [ListLocator([url(1)])], loader))
    (letter,) = await letters(queue_of(store))
    assert (letter.detail, loader.asked[url(1)]) == ("too large", 1)


async def test_only_the_last_errors_are_kept(store: KeyValueStore) -> None:
    loader = Loader(Failing(10_000, FetchError("no", retryable=False)))
    urls = [url(n, f"h{n}") for n in range(150)]
    result = await fetcher().run(plan_of(store, [ListLocator(urls)], loader))
    assert (len(result.errors), result.stats.dead) == (100, 150)


async def test_what_must_not_be_fetched_is_done_without(store: KeyValueStore) -> None:
    told: list[Event] = []
    loader = Loader(Failing(1, Skipped("robots.txt forbids it")))
    result = await fetcher(told).run(plan_of(store, [ListLocator([url(1)])], loader))
    assert (result.processed_count, result.stats.completed, result.stats.dead) == (1, 1, 0)
    assert [e.reason for e in told if isinstance(e, NotFetched)] == ["robots.txt forbids it"]


async def test_a_request_that_takes_too_long_has_failed(store: KeyValueStore) -> None:
    async def slow(request: RequestMeta) -> Any:
        await asyncio.sleep(60)

    run = fetcher(request_timeout=0.05, queue={"max_attempts": 2})
    await run.run(plan_of(store, [ListLocator([url(1)])], Loader(slow)))
    (letter,) = await letters(queue_of(store))
    assert "took longer than 0.05 s" in letter.failures[-1].message


async def test_retry_after_shuts_the_host_for_everybody(store: KeyValueStore) -> None:
    told: list[Event] = []
    begun: list[float] = []

    def answer(request: RequestMeta) -> Any:
        begun.append(asyncio.get_running_loop().time())
        if len(begun) == 1:
            raise FetchError("429", retry_after=0.5)
        return page(request)

    plan = plan_of(store, [ListLocator([url(n) for n in range(3)])], Loader(answer), concurrency=1)
    await fetcher(told).run(plan)
    assert begun[1] - begun[0] >= 0.45
    (shut,) = [event for event in told if isinstance(event, LaneShut)]
    assert (shut.lane, shut.duration) == ("host.test", 0.5)


async def test_a_host_that_wants_to_be_asked_slowly_is(store: KeyValueStore) -> None:
    begun: list[float] = []

    def answer(request: RequestMeta) -> Any:
        begun.append(asyncio.get_running_loop().time())
        if len(begun) == 1:
            raise Postponed("crawl-delay", interval=0.1)
        return page(request)

    urls = [url(n) for n in range(5)]
    result = await fetcher().run(plan_of(store, [ListLocator(urls)], Loader(answer), concurrency=1))
    assert result.processed_count == 5
    assert (await queue_of(store).stats()).retried == 0
    # From before the first, which may begin long after its turn came: the others need not.
    assert all(at - begun[0] >= turn * 0.1 for turn, at in enumerate(begun))


async def test_a_page_that_is_an_answer_of_an_error_is_no_failure(store: KeyValueStore) -> None:
    loader = Loader(lambda request: page(request, status=404))
    result = await fetcher().run(plan_of(store, [ListLocator([url(1)])], loader))
    assert (result.processed_count, result.stats.dead, loader.asked[url(1)]) == (1, 0, 1)


# --- locators ----------------------------------------------------------------------------------


class Flaky(ApiLocator):
    def __init__(self, api: FakeApi, failures: int) -> None:
        super().__init__(api)
        self.failures = failures

    async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
        found = await super().get_next_urls(ctx)
        if self.cursor == 2 and self.failures:
            self.failures -= 1
            raise FetchError("the provider is away")
        return found


async def test_a_locator_that_fails_goes_on_where_it_stood(store: KeyValueStore) -> None:
    api = FakeApi([[url(1)], [url(2)], [url(3)]])
    result = await fetcher().run(plan_of(store, [Flaky(api, 2)], Loader()))
    assert result.processed_count == 3
    assert api.asked == {0: 1, 1: 3, 2: 1, 3: 1}


async def test_a_locator_that_fails_for_good_is_a_dead_letter_and_can_be_requeued(
    store: KeyValueStore,
) -> None:
    api = FakeApi([[url(1)], [url(2)]])
    result = await fetcher().run(plan_of(store, [Flaky(api, 4)], Loader()))
    assert (result.processed_count, result.stats.dead) == (1, 1)
    assert await queue_of(store).requeue() == 1
    result = await fetcher().run(plan_of(store, [Flaky(api, 0)], Loader()))
    assert (result.processed_count, result.stats.dead) == (1, 0)


@pytest.mark.parametrize("nonsense", ["text", [1], [None], 5])
async def test_a_locator_that_gives_nonsense(store: KeyValueStore, nonsense: Any) -> None:
    locator = AsyncMock()
    locator.get_next_urls.return_value = nonsense
    result = await fetcher().run(plan_of(store, [locator], Loader()))
    assert result.stats.dead == 1
    assert result.is_finished


async def test_a_locator_is_never_asked_again_for_what_it_gave(store: KeyValueStore) -> None:
    """Stopped again and again, each time with new objects, as new processes have them."""
    api = FakeApi([[url(f"{p}/{n}") for n in range(5)] for p in range(20)])
    asked: dict[str, int] = {}
    for _ in range(200):
        stop = Stop()
        loader = Loader(stopping(stop))
        plan = plan_of(store, [ApiLocator(api)], loader, concurrency=2, target_queue_size=10)
        result = await fetcher().run(plan, stop)
        asked |= {u: asked.get(u, 0) + n for u, n in loader.asked.items()}
        if result.is_finished:
            break
    assert set(api.asked) == set(range(21))
    assert set(api.asked.values()) == {1}
    assert len(asked) == 100
    assert set(asked.values()) == {1}


async def test_a_locator_without_checkpoint_starts_over_and_relies_on_keys(
    store: KeyValueStore,
) -> None:
    stop = Stop()
    loader = Loader(stopping(stop))
    urls = [url(n) for n in range(20)]
    await fetcher().run(plan_of(store, [ListLocator(urls)], loader, concurrency=1), stop)
    rest = Loader()
    result = await fetcher().run(plan_of(store, [ListLocator(urls)], rest))
    assert result.is_finished
    assert sorted([*loader.asked, *rest.asked]) == sorted(urls)


async def test_locators_are_asked_no_further_than_needed(store: KeyValueStore) -> None:
    """While the first request is being made, enough is ready, and nobody asks for more."""
    api = FakeApi([[url(f"{p}/{n}") for n in range(10)] for p in range(50)])
    going, most = asyncio.Event(), 0

    async def wait(request: RequestMeta) -> Any:
        nonlocal most
        most = max(most, (await queue_of(store).stats()).ready)
        await going.wait()
        return page(request)

    async def let_go() -> None:
        await asyncio.sleep(0.6)
        going.set()

    plan = plan_of(store, [ApiLocator(api)], Loader(wait), concurrency=1, target_queue_size=20)
    _, result = await asyncio.gather(let_go(), fetcher().run(plan))
    assert result.processed_count == 500
    assert most <= 20 + 10 + 1


async def test_two_fetchers_share_a_run(open_store: OpenStore) -> None:
    api = FakeApi([[url(f"{p}/{n}", f"h{n}") for n in range(10)] for p in range(30)])
    loaders = [Loader(), Loader()]
    plans = [plan_of(open_store(), [ApiLocator(api)], loader) for loader in loaders]
    results = await asyncio.gather(*(fetcher().run(plan) for plan in plans))
    assert sum(result.processed_count for result in results) == 300
    assert all(result.is_finished for result in results)
    assert set((loaders[0].asked + loaders[1].asked).values()) == {1}
    assert set(api.asked.values()) == {1}


async def test_a_turn_of_a_locator_that_is_gone(store: KeyValueStore) -> None:
    stop = Stop()
    loader = Loader(stopping(stop))
    api = FakeApi([[url(n)] for n in range(9)])
    plan = plan_of(store, [ApiLocator(api)], loader, concurrency=1, target_queue_size=1)
    await fetcher().run(plan, stop)
    result = await fetcher().run(plan_of(store, [], Loader()))
    (letter,) = await letters(queue_of(store))
    assert "no locator" in letter.detail
    assert result.is_finished


# --- stopping ----------------------------------------------------------------------------------


async def test_a_stop_lets_what_is_in_flight_end(store: KeyValueStore) -> None:
    stop = Stop()

    async def slow(request: RequestMeta) -> Any:
        stop.ask()
        await asyncio.sleep(0.1)
        return page(request)

    plan = plan_of(store, [ListLocator([url(n) for n in range(50)])], Loader(slow))
    result = await fetcher().run(plan, stop)
    assert 1 <= result.processed_count <= 4
    assert not result.is_finished
    assert (result.stats.leased, result.stats.retried) == (0, 0)


async def test_what_does_not_end_in_time_is_given_back(store: KeyValueStore) -> None:
    stop = Stop()

    async def endless(request: RequestMeta) -> Any:
        stop.ask()
        await asyncio.sleep(600)

    plan = plan_of(store, [ListLocator([url(n) for n in range(9)])], Loader(endless))
    result = await fetcher(grace=0.1).run(plan, stop)
    assert (result.processed_count, result.stats.ready, result.stats.leased) == (0, 9 + 1, 0)
    rest = Loader()
    again = await fetcher().run(plan_of(store, [ListLocator([])], rest))
    assert (again.processed_count, again.stats.retried) == (9, 0)


async def test_a_cancelled_run_gives_back_what_it_held(store: KeyValueStore) -> None:
    async def endless(request: RequestMeta) -> Any:
        await asyncio.sleep(600)

    loader = Loader(endless)
    run = asyncio.ensure_future(fetcher().run(plan_of(store, [ListLocator([url(1)])], loader)))
    queue = queue_of(store)

    async def is_leased() -> bool:
        return bool(loader.asked)

    await eventually(is_leased)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    stats = await accounted(queue)
    assert (stats.leased, stats.retried, loader.closed) == (0, 0, 1)
    assert stats.ready >= 1


# --- when something is full or gone ------------------------------------------------------------


async def test_a_full_storage_pauses_the_run(store: KeyValueStore) -> None:
    told: list[Event] = []
    loader = Loader(Failing(1, StorageFull("no room in pages/: free some space")))
    result = await fetcher(told).run(plan_of(store, [ListLocator([url(1)])], loader))
    assert (result.processed_count, result.stats.retried, result.stats.dead) == (1, 0, 0)
    assert [e.reason for e in told if isinstance(e, Paused)] == [
        "no room in pages/: free some space"
    ]


async def test_a_broken_storage_ends_the_run_and_buries_nothing(store: KeyValueStore) -> None:
    loader = Loader(Failing(99, StorageError("pages/ is not there any more")))
    urls = [url(n) for n in range(5)]
    with pytest.raises(StorageError, match="not there"):
        await fetcher().run(plan_of(store, [ListLocator(urls)], loader))
    stats = await accounted(queue_of(store))
    assert (stats.dead, stats.retried, stats.leased) == (0, 0, 0)
    result = await fetcher().run(plan_of(store, [ListLocator(urls)], Loader()))
    assert result.processed_count == 5


async def test_a_full_store_pauses_the_run_and_nothing_is_lost() -> None:
    class Full(MemoryStore):
        refusals = 3

        async def transact(self, fn: Any, *, urgent: bool = False) -> Any:
            def refused(tx: Any) -> Any:
                outcome = fn(tx)
                if tx._replaced and self.refusals and not urgent:
                    self.refusals -= 1
                    raise StoreFull("the disk is full")
                return outcome

            return await super().transact(refused if loader.asked else fn, urgent=urgent)

    class Links(ListLocator):
        async def handle_url_processed(
            self, request: RequestMeta, result: Any, ctx: FetchRunContext
        ) -> list[RequestMeta]:
            return [] if request.depth else [RequestMeta(url("child"), 1)]

    told: list[Event] = []
    loader = Loader()
    result = await fetcher(told).run(plan_of(Full(), [Links([url(1)])], loader))
    assert result.processed_count == 2
    assert set(loader.asked.values()) == {1}
    assert [type(e) for e in told if isinstance(e, Paused | GoesOn)] == [Paused, GoesOn]


async def test_a_store_that_goes_away_is_told_as_one_error() -> None:
    class Gone(MemoryStore):
        async def transact(self, fn: Any, *, urgent: bool = False) -> Any:
            if loader.asked:
                raise StoreUnavailable("gone")
            return await super().transact(fn, urgent=urgent)

    loader = Loader()
    plan = plan_of(Gone(), [ListLocator([url(n) for n in range(20)])], loader)
    with pytest.raises(StoreUnavailable):
        await fetcher(queue={"op_timeout": 0.2}).run(plan)


# --- what is told of it ------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, FetchError("no", retryable=False), Skipped("forbidden")])
async def test_credentials_in_a_url_are_told_to_nobody(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Event] = []
    loader = Loader(page if error is None else Failing(9, error))
    locator = ListLocator(["http://user:canary@host.test/x"])
    result = await fetcher(told).run(plan_of(MemoryStore(), [locator], loader))
    assert result.processed_count == 1
    assert "canary" not in f"{told} {result.errors} {caplog.text}"


async def test_a_crawl_delay_does_not_shorten_the_interval_that_was_chosen() -> None:
    begun: list[float] = []

    def answer(request: RequestMeta) -> Any:
        begun.append(asyncio.get_running_loop().time())
        if len(begun) == 1:
            raise Postponed("crawl-delay", interval=0.01)
        return page(request)

    plan = plan_of(MemoryStore(), [ListLocator([url(n) for n in range(4)])], Loader(answer))
    # From before the first, which may begin long after its turn came: the others need not.
    start = asyncio.get_running_loop().time()
    await fetcher(queue={"lane_interval": 0.2}).run(plan)
    assert all(at - start >= turn * 0.2 for turn, at in enumerate(begun))


async def test_what_is_no_page_has_a_line_in_the_index_all_the_same(
    store: KeyValueStore, tmp_path: Path
) -> None:
    storage = FileStorage(tmp_path)
    loader = Loader(lambda request: {"anything": 1})
    await fetcher().run(plan_of(store, [ListLocator([url(1)])], loader, storage=storage))
    await storage.close()
    (line,) = (tmp_path / "index.jsonl").read_text().splitlines()
    assert json.loads(line) == {"n": 1, "url": url(1)}
