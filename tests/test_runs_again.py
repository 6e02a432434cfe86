"""Runs that are run again, forgotten, or short of room: nothing is lost, nothing asked twice."""

from __future__ import annotations

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
from data_fetcher_core.fetcher import Fetcher, FetcherOptions
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import KVStoreQueue, Lease, QueueOptions, RequestMetaSerializer
from data_fetcher_core.retry import FixedDelays
from data_fetcher_core.storage import FileStorage
from data_fetcher_core.storage.index_lines import Entries
from data_fetcher_core.testing import ManualClock
from tests.conftest import OpenStore
from tests.fetching import ApiLocator, FakeApi, ListLocator, Loader, page, plan_of, url
from tests.harness import accounted
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


# --- a run that is gone ------------------------------------------------------------------------


async def test_a_run_that_is_forgotten_meanwhile_is_not_finished(store: KeyValueStore) -> None:
    async def forget(request: RequestMeta) -> Any:
        if str(request.url) == url(3):
            await queue_of(store).forget()
        return page(request)

    plan = plan_of(store, [ListLocator([url(n) for n in range(40)])], Loader(forget))
    with pytest.raises(StoreLost, match="forgotten"):
        await fetcher().run(plan)


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
