"""Runs that are run again, forgotten, or short of room: nothing is lost, nothing asked twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.core import Entry, FetchRunContext, RequestMeta
from data_fetcher_core.errors import (
    FetchError,
    StorageError,
    StorageFull,
    StoreLost,
    StoreUnavailable,
)
from data_fetcher_core.fetcher import Fetcher, FetcherOptions, Stop
from data_fetcher_core.fetcher.refilling import Refill
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import KVStoreQueue, Lease, QueueOptions, RequestMetaSerializer
from data_fetcher_core.retry import FixedDelays
from data_fetcher_core.storage import FileStorage
from data_fetcher_core.storage.index_lines import Entries
from data_fetcher_core.testing import ManualClock
from tests.conftest import OpenStore
from tests.fetching import ApiLocator, FakeApi, ListLocator, Loader, page, plan_of, url
from tests.harness import accounted, eventually
from tests.virtual import in_virtual_time


@pytest.fixture
def store(open_store: OpenStore) -> KeyValueStore:
    return open_store()


def fetcher(**options: Any) -> Fetcher:
    queue = QueueOptions(retry=FixedDelays((0.01,)), **options)
    return Fetcher(FetcherOptions(queue=queue), subscriber=lambda _: None)


def queue_of(store: KeyValueStore, run_id: str = "test") -> KVStoreQueue:
    return KVStoreQueue(
        store, f"fetch:{run_id}", RequestMetaSerializer(), subscriber=lambda _: None
    )


# --- where a locator begins --------------------------------------------------------------------


class Hasty(ApiLocator):
    """Goes on before it knows that it was answered."""

    failures = 1

    async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
        page, self.cursor = self.cursor, self.cursor + 1
        if self.failures:
            self.failures -= 1
            raise FetchError("the provider is away")
        return await self.api.ask(page)


async def test_a_first_turn_that_failed_begins_at_the_beginning(store: KeyValueStore) -> None:
    api = FakeApi([[url(1)], [url(2)]])
    result = await fetcher().run(plan_of(store, [Hasty(api)], Loader()))
    assert result.processed_count == 2


async def test_the_same_recipe_in_another_run_begins_at_the_beginning(
    store: KeyValueStore,
) -> None:
    locator = ApiLocator(FakeApi([[url(1)], [url(2)]]))
    for run_id in ("one", "two"):
        result = await fetcher().run(plan_of(store, [locator], Loader(), run_id=run_id))
        assert (run_id, result.processed_count) == (run_id, 2)


async def test_a_first_turn_whose_settlement_failed_is_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, locator = MemoryStore(), ApiLocator(FakeApi([[url(1)]]))

    async def refuse(*_: Any) -> None:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(Lease, "progress", refuse)
        with pytest.raises(StoreUnavailable):
            await fetcher().run(plan_of(store, [locator], Loader()))
    result = await fetcher().run(plan_of(store, [locator], Loader()))
    assert result.processed_count == 1


async def test_a_locator_whose_dead_letter_was_purged_is_not_forgotten(
    store: KeyValueStore,
) -> None:
    api = FakeApi([[url(1)], [url(2)]])
    locator = Hasty(api)
    locator.failures = 99
    result = await fetcher().run(plan_of(store, [locator], Loader()))
    assert result.stats.dead == 1
    assert await queue_of(store).purge_dead() == 1
    locator = Hasty(api)
    locator.failures = 0
    result = await fetcher().run(plan_of(store, [locator], Loader()))
    assert (result.processed_count, result.is_finished) == (2, True)
    assert set(api.asked.values()) == {1}


class Refused(ApiLocator):
    """Its provider says, the first time, how long it is to be left alone."""

    def __init__(self, api: FakeApi, clock: ManualClock, asked_at: list[float]) -> None:
        super().__init__(api)
        self.clock = clock
        self.asked_at = asked_at

    async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
        self.asked_at.append(self.clock.monotonic())
        if len(self.asked_at) == 1:
            raise FetchError("429", retry_after=60.0)
        return await super().get_next_urls(ctx)


@pytest.mark.parametrize("is_joined", [True, False])
async def test_what_a_provider_asked_for_holds_for_who_comes_later(is_joined: bool) -> None:
    clock, asked_at, stop = ManualClock(), list[float](), Stop()
    store, api = MemoryStore(clock=clock), FakeApi([[url(1)]])
    run = Fetcher(FetcherOptions(), clock=clock, subscriber=lambda _: None)

    async def first() -> None:
        await run.run(plan_of(store, [Refused(api, clock, asked_at)], Loader()), stop)

    async def later() -> None:
        await clock.sleep(5.0)
        if not is_joined:
            stop.ask()
        await clock.sleep(5.0)
        await run.run(plan_of(store, [Refused(api, clock, asked_at)], Loader()))

    await in_virtual_time(clock, first(), later())
    assert asked_at[1] - asked_at[0] >= 60.0
    assert (await accounted(queue_of(store))).completed == 1


async def test_who_parked_a_turn_does_not_open_its_lane_after_it_opened_by_itself() -> None:
    """Somebody else may have had that turn since then, and was told to leave the provider alone."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    queues = [KVStoreQueue(store, "q", clock=clock, subscriber=lambda _: None) for _ in range(2)]
    await queues[0].enqueue([Entry("turn", lane="@locator")])
    refill = Refill(queues[0], 100, 1, clock)
    await refill.park("@locator")
    await refill.bring_back()
    (lease,) = await queues[1].lease()
    await lease.give_back()
    await refill.park("@locator")
    assert await queues[1].lease() == []
    clock.advance(30.0)
    (lease,) = await queues[1].lease()
    await queues[1].shut("@locator", 60.0)
    await lease.release()
    await refill.bring_back()
    clock.advance(59.0)
    assert await queues[1].lease() == []
    clock.advance(2.0)
    assert len(await queues[1].lease()) == 1


# --- a run that is gone ------------------------------------------------------------------------


async def test_a_run_that_is_forgotten_meanwhile_is_not_finished(store: KeyValueStore) -> None:
    async def forget(request: RequestMeta) -> Any:
        if str(request.url) == url(3):
            await queue_of(store).forget()
        return page(request)

    plan = plan_of(store, [ListLocator([url(n) for n in range(40)])], Loader(forget))
    with pytest.raises(StoreLost, match="forgotten"):
        await fetcher().run(plan)


async def test_a_run_that_is_forgotten_meanwhile_is_not_begun_anew(store: KeyValueStore) -> None:
    """Its locators have more in a run of which nothing is known."""
    loader = Loader()

    async def forget(request: RequestMeta) -> Any:
        if str(request.url) == url(3):
            await queue_of(store).forget()
        return page(request)

    loader.answer = forget
    api = FakeApi([[url(n) for n in range(first, first + 5)] for first in range(0, 40, 5)])
    with pytest.raises(StoreLost, match="forgotten"):
        await fetcher().run(plan_of(store, [ApiLocator(api)], loader))
    assert set(loader.asked.values()) == {1}
    stats = await queue_of(store).stats()
    assert (stats.enqueued, stats.completed, stats.size) == (0, 0, 0)


async def test_a_run_begun_anew_is_not_that_of_who_still_works_on_the_one_before(
    store: KeyValueStore, tmp_path: Path
) -> None:
    """Who had the old one fetches nothing of the new, and takes none of its lines."""
    old, new = (FileStorage(tmp_path / name) for name in ("old", "new"))
    urls = [url(n, f"h{n}") for n in range(60)]

    async def slow(request: RequestMeta) -> Any:
        await asyncio.sleep(0.02)
        return page(request)

    async def is_half_done() -> bool:
        return before.asked.total() >= 20

    before, after = Loader(slow), Loader(slow)
    plan = plan_of(store, [ListLocator(urls)], before, storage=old)
    working = asyncio.ensure_future(fetcher().run(plan))
    await eventually(is_half_done)
    await queue_of(store).forget()
    asked = before.asked.total()
    result = await fetcher().run(plan_of(store, [ListLocator(urls)], after, storage=new))
    with pytest.raises(StoreLost, match="forgotten"):
        await working
    await asyncio.gather(old.close(), new.close())
    # Those that were on their way when it was forgotten.
    assert before.asked.total() <= asked + 4
    assert (result.processed_count, set(after.asked.values())) == (60, {1})
    lines = (tmp_path / "new" / "index.jsonl").read_text().splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(1, 61))


# --- more than one step takes ------------------------------------------------------------------


async def test_a_page_with_more_links_than_one_step_takes(store: KeyValueStore) -> None:
    class Many(ListLocator):
        async def handle_url_processed(
            self, request: RequestMeta, result: Any, ctx: FetchRunContext
        ) -> list[Any]:
            if request.depth:
                return []
            plain = [RequestMeta(url(n, f"h{n % 99}"), 1) for n in range(10_300)]
            return [Entry(RequestMeta(url("own"), 1)), *plain]

    loader = Loader()
    plan = plan_of(store, [Many([url("start")])], loader, concurrency=64)
    result = await fetcher().run(plan)
    assert result.processed_count == 1 + 1 + 10_300
    assert set(loader.asked.values()) == {1}


async def test_what_cannot_be_settled_is_told(store: KeyValueStore, tmp_path: Path) -> None:
    class Odd:
        def index_entry(self) -> dict[str, Any]:
            return {"url": "x", "odd": object()}

    storage = FileStorage(tmp_path)
    loader = Loader(lambda request: Odd())
    plan = plan_of(store, [ListLocator([url(1)])], loader, storage=storage)
    result = await fetcher(max_attempts=1).run(plan)
    await storage.close()
    assert result.stats.dead == 1
    assert len(result.errors) == 1


# --- no room -----------------------------------------------------------------------------------


async def test_while_there_is_no_room_pages_are_not_fetched_over_and_over() -> None:
    clock = ManualClock()
    store, asked = MemoryStore(clock=clock), 0

    def answer(request: RequestMeta) -> Any:
        nonlocal asked
        asked += 1
        if clock.monotonic() < 600.0:
            raise StorageFull("no room")
        return page(request)

    options = FetcherOptions(queue=QueueOptions(lane_concurrency=0))
    run = Fetcher(options, clock=clock, subscriber=lambda _: None)
    plan = plan_of(
        store, [ListLocator([url(n) for n in range(64)])], Loader(answer), concurrency=32
    )
    (result,) = await in_virtual_time(clock, run.run(plan))
    assert result.processed_count == 64
    # All that was in flight when it filled up, and then one try every eight seconds.
    assert asked <= 64 + 32 + 600 / 8 + 10


async def test_an_index_that_lost_its_beginning_is_not_continued(
    store: KeyValueStore, tmp_path: Path
) -> None:
    async def run(urls: list[str]) -> None:
        storage = FileStorage(tmp_path)
        try:
            await fetcher().run(plan_of(store, [ListLocator(urls)], Loader(), storage=storage))
        finally:
            await storage.close()

    await run([url(1), url(2)])
    lines = (tmp_path / "index.jsonl").read_text().splitlines()
    assert [json.loads(line)["n"] for line in lines] == [1, 2]
    (tmp_path / "index.jsonl").unlink()
    await queue_of(store).enqueue([Entry(RequestMeta(url(3)), key="3", lane="x")])
    with pytest.raises(StorageError, match="lacks"):
        await run([url(1), url(2)])
    assert (await accounted(queue_of(store))).completed == 3


async def test_results_stay_in_the_store_until_the_index_has_them(
    store: KeyValueStore, tmp_path: Path
) -> None:
    class Refusing(FileStorage):
        async def append_index(self, entries: Entries) -> int:
            raise StorageError("the index cannot be written")

    refusing = Refusing(tmp_path)
    urls = [url(n) for n in range(5)]
    with pytest.raises(StorageError, match="cannot be written"):
        await fetcher().run(plan_of(store, [ListLocator(urls)], Loader(), storage=refusing))
    await refusing.close()
    storage = FileStorage(tmp_path)
    loader = Loader()
    await fetcher().run(plan_of(store, [ListLocator(urls)], loader, storage=storage))
    await storage.close()
    lines = [json.loads(line) for line in (tmp_path / "index.jsonl").read_text().splitlines()]
    assert [line["n"] for line in lines] == [1, 2, 3, 4, 5]
    assert {line["url"] for line in lines} == set(urls)
    assert not loader.asked
