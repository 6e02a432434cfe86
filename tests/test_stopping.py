"""Runs that are asked to stop, at any moment: nothing is spent, nothing waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from data_fetcher_core.core import FetchRunContext, RequestMeta
from data_fetcher_core.errors import QueueClosed, StoreFull
from data_fetcher_core.events import Event, Paused
from data_fetcher_core.fetcher import Fetcher, FetcherOptions, FetchResult, Stop
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import KVStoreQueue, Lease, QueueOptions, RequestMetaSerializer
from data_fetcher_core.queue.stream import LeaseStream
from data_fetcher_core.testing import ManualClock
from tests.conftest import OpenStore
from tests.fetching import ApiLocator, FakeApi, ListLocator, Loader, page, plan_of, url
from tests.harness import accounted, client_of, spin
from tests.virtual import in_virtual_time

MANY = 10_200
ONCE = QueueOptions(max_attempts=1)


@pytest.fixture
def store(open_store: OpenStore) -> KeyValueStore:
    return open_store()


def queue_of(store: KeyValueStore, **more: Any) -> KVStoreQueue:
    return KVStoreQueue(
        store, "fetch:test", RequestMetaSerializer(), subscriber=lambda _: None, **more
    )


def fetcher(**options: Any) -> Fetcher:
    return Fetcher(FetcherOptions(**options), subscriber=lambda _: None)


# --- what is in flight -------------------------------------------------------------------------


class ManyLinks(ListLocator):
    """A page with more links than one step takes, found just as the run is asked to stop."""

    def __init__(self, stop: Stop) -> None:
        super().__init__([url("start")])
        self.stop = stop

    async def handle_url_processed(
        self, request: RequestMeta, result: Any, ctx: FetchRunContext
    ) -> list[RequestMeta]:
        self.stop.ask()
        await spin()
        return [RequestMeta(url(n, f"h{n % 99}"), 1) for n in range(MANY)]


class ManyAtOnce(ListLocator):
    """A turn that brings so many."""

    def __init__(self, stop: Stop) -> None:
        super().__init__([url(n, f"h{n % 99}") for n in range(MANY)])
        self.stop = stop

    async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
        self.stop.ask()
        await spin()
        return await super().get_next_urls(ctx)


@pytest.mark.parametrize(("kind", "done"), [(ManyLinks, 1), (ManyAtOnce, 0)])
async def test_a_stop_lets_in_all_that_is_brought_by_what_is_in_flight(
    store: KeyValueStore, kind: Any, done: int
) -> None:
    stop = Stop()
    plan = plan_of(store, [kind(stop)], Loader())
    result = await fetcher(queue=ONCE).run(plan, stop)
    assert (result.stats.completed, result.stats.dead, result.stats.retried) == (done, 0, 0)
    # And the turn of the locator.
    assert result.stats.ready == MANY + 1
    assert not result.is_finished


async def test_a_recipe_that_meets_the_stop_spends_no_attempt(store: KeyValueStore) -> None:
    stop = Stop()

    async def refused(request: RequestMeta) -> Any:
        stop.ask()
        await spin()
        raise QueueClosed("the queue was shut down and takes nothing new")

    plan = plan_of(store, [ListLocator([url(1)])], Loader(refused))
    result = await fetcher(queue=ONCE).run(plan, stop)
    assert (result.stats.dead, result.stats.retried, result.stats.ready) == (0, 0, 1 + 1)


async def test_a_queue_of_the_recipe_that_is_closed_is_a_failure_like_any_other(
    store: KeyValueStore,
) -> None:
    def refused(request: RequestMeta) -> Any:
        raise QueueClosed("the queue was shut down and takes nothing new")

    plan = plan_of(store, [ListLocator([url(1)])], Loader(refused))
    result = await fetcher(queue=ONCE).run(plan)
    assert (result.stats.dead, result.is_finished) == (1, True)


async def test_a_lease_that_is_lost_while_it_is_given_back(
    store: KeyValueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was taken for dead just before it was asked to stop."""
    stop, hand_out = Stop(), LeaseStream.next

    async def lost(stream: LeaseStream) -> Lease | None:
        lease = await hand_out(stream)
        if lease is not None and not lease.lane.startswith("@") and not stop.is_asked:
            stop.ask()
            await take_all(queue_of(store))
        return lease

    async def take_all(queue: KVStoreQueue) -> None:
        client = await client_of(queue)
        for name, beat in (await client.engine.beat(client.name)).consumers.items():
            if name != client.name:
                await client.engine.reap(name, beat)
        await queue.close()

    monkeypatch.setattr(LeaseStream, "next", lost)
    loader = Loader()
    plan = plan_of(store, [ListLocator([url(1)])], loader, concurrency=1)
    result = await fetcher().run(plan, stop)
    assert (result.stats.leased, result.stats.retried, loader.asked) == (0, 0, {})
    assert not result.is_finished


# --- no room -----------------------------------------------------------------------------------


class Filling(MemoryStore):
    """Has no room from a certain write on."""

    room = 1 << 62

    async def transact(self, fn: Any, *, urgent: bool = False) -> Any:
        def refused(tx: Any) -> Any:
            outcome = fn(tx)
            self.room -= bool(tx._replaced)
            if self.room < 0 and tx._replaced and not urgent:
                raise StoreFull("the disk is full")
            return outcome

        return await super().transact(refused, urgent=urgent)


class Stopped:
    """A run that is asked to stop as soon as it waits for room."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.stop = Stop()

    async def run(self, store: KeyValueStore, locator: Any) -> FetchResult:
        run = Fetcher(
            FetcherOptions(queue=ONCE, grace=3.0), clock=self.clock, subscriber=self._tell
        )
        began = self.clock.monotonic()
        async with asyncio.timeout(30):
            plan = plan_of(store, [locator], Loader())
            (result,) = await in_virtual_time(self.clock, run.run(plan, self.stop))
        # The grace, and the pause that it met.
        assert not self.stop.is_asked or self.clock.monotonic() - began <= 3.0 + 8.0
        assert result.is_finished is not self.stop.is_asked
        return result

    def _tell(self, event: Event) -> None:
        if isinstance(event, Paused):
            self.stop.ask()


async def test_a_stop_is_heard_wherever_the_run_waits_for_room() -> None:
    """A store that fills up at any write, the very first ones of a run among them."""
    cut_short = []
    for room in range(100):
        clock = ManualClock()
        store, api = Filling(clock=clock), FakeApi([[url(1)], [url(2)]])
        await queue_of(store, clock=clock, options=ONCE).stats()
        store.room = room
        result = await Stopped(clock).run(store, ApiLocator(api))
        if result.is_finished:
            break
        cut_short.append(result.cut_short)
        store.room = 1 << 62
        result = await Stopped(clock).run(store, ApiLocator(api))
        stats = await accounted(queue_of(store, clock=clock))
        assert (stats.completed, stats.dead, stats.retried) == (2, 0, 0)
    assert result.is_finished
    assert cut_short.count(True) >= 2
    assert cut_short.count(False) >= 4


class Failing(ListLocator):
    async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
        raise ValueError("no")


async def test_a_stop_is_heard_while_a_locator_is_brought_back() -> None:
    """Its turn was given up and purged, and there is no room for another one."""
    before_any_turn = 0
    for room in range(100):
        clock = ManualClock()
        store = Filling(clock=clock)
        await Stopped(clock).run(store, Failing([]))
        assert await queue_of(store, clock=clock).purge_dead() == 1
        store.room = room
        run = Stopped(clock)
        result = await run.run(store, ListLocator([url(1)]))
        if not run.stop.is_asked:
            break
        before_any_turn += result.stats.size == 0
    assert result.processed_count == 1
    assert before_any_turn >= 2


async def test_a_run_that_could_not_begin_is_not_finished() -> None:
    clock = ManualClock()
    store, stop = Filling(clock=clock), Stop()
    await queue_of(store, clock=clock).stats()
    store.room = 0
    stop.ask()
    run = Fetcher(FetcherOptions(grace=1.0), clock=clock, subscriber=lambda _: None)
    plan = plan_of(store, [ListLocator([url(1)])], Loader())
    async with asyncio.timeout(30):
        (result,) = await in_virtual_time(clock, run.run(plan, stop))
    assert (result.cut_short, result.is_finished, result.stats.size) == (True, False, 0)


async def test_nothing_is_begun_by_who_is_asked_to_stop_before(store: KeyValueStore) -> None:
    stop, loader = Stop(), Loader(page)
    stop.ask()
    result = await fetcher().run(plan_of(store, [ListLocator([url(1)])], loader), stop)
    assert (result.cut_short, result.is_finished, loader.asked) == (False, False, {})
