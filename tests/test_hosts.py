"""Hosts: how often and how many at a time they are asked, and when they are left alone.

In virtual time, on one clock for all: what takes minutes takes none, and the figures are exact.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from data_fetcher_core.core import Entry, FetchRunContext, RequestMeta
from data_fetcher_core.errors import FetchError
from data_fetcher_core.events import Event, LaneRecovered, LaneShut
from data_fetcher_core.fetcher import BreakerOptions, Fetcher, FetcherOptions
from data_fetcher_core.fetcher.breakers import Breakers
from data_fetcher_core.fetcher.turns import turn_lane
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import KVStoreQueue, QueueOptions
from data_fetcher_core.retry import FixedDelays
from data_fetcher_core.testing import ManualClock
from tests.conftest import MakeQueue
from tests.fetching import ApiLocator, FakeApi, ListLocator, Loader, page, plan_of, url
from tests.harness import accounted
from tests.virtual import in_virtual_time

Answer = Callable[[RequestMeta], Awaitable[Any]]


class World:
    """Several fetchers on one store and one clock, and the log of what hosts were asked."""

    def __init__(self, answer: Callable[[RequestMeta], Any], takes: Callable[[str], float]) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.told: list[Event] = []
        self.begun: dict[str, list[float]] = defaultdict(list)
        self.ended: dict[str, list[float]] = defaultdict(list)
        self.busy: dict[str, int] = defaultdict(int)
        self.most_busy: dict[str, int] = defaultdict(int)
        self._answer = answer
        self._takes = takes

    async def _load(self, request: RequestMeta) -> Any:
        host = request.url.host or ""
        self.begun[host].append(self.clock.monotonic())
        self.busy[host] += 1
        self.most_busy[host] = max(self.most_busy[host], self.busy[host])
        try:
            await self.clock.sleep(self._takes(host))
            return self._answer(request)
        finally:
            self.busy[host] -= 1
            self.ended[host].append(self.clock.monotonic())

    async def run(
        self,
        urls: list[str],
        processes: int = 1,
        concurrency: int = 16,
        target: int = 100,
        **options: Any,
    ) -> list[Any]:
        queue = QueueOptions(retry=FixedDelays((1.0,)), **options.pop("queue", {}))
        fetcher = Fetcher(
            FetcherOptions(queue=queue, **options), clock=self.clock, subscriber=self.told.append
        )
        runs = [
            fetcher.run(
                plan_of(
                    self.store,
                    [ListLocator(urls)],
                    Loader(self._load),
                    concurrency=concurrency,
                    target_queue_size=target,
                )
            )
            for _ in range(processes)
        ]
        return await in_virtual_time(self.clock, *runs)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]


def urls(pages: int, hosts: int, prefix: str = "h") -> list[str]:
    return [url(n, f"{prefix}{n % hosts}") for n in range(pages)]


# --- pace --------------------------------------------------------------------------------------


async def test_ten_requests_a_second_are_never_more_over_three_processes() -> None:
    world = World(page, lambda host: 0.35)
    await world.run(urls(100, 1), processes=3, queue={"lane_interval": 0.1})
    (begun,) = world.begun.values()
    begun.sort()
    assert len(begun) == 100
    for first, eleventh in zip(begun, begun[10:], strict=False):
        assert eleventh - first >= 1.0 - 1e-3
    assert begun[-1] - begun[0] <= 99 * 0.1 * 1.1


async def test_a_host_gets_so_many_at_a_time_over_all_processes() -> None:
    world = World(page, lambda host: 1.0)
    await world.run(urls(60, 2), processes=3, queue={"lane_concurrency": 4})
    assert set(world.most_busy.values()) == {4}


@pytest.mark.parametrize("target", [1_000, 100])
async def test_a_slow_host_stops_nobody(target: int) -> None:
    """Fifty fast hosts finish as if the slow one were not there, but for the workers it holds."""

    async def fast_end(slow: bool) -> float:
        world = World(page, lambda host: 5.0 if host.startswith("slow") else 0.05)
        pages = urls(50 * 40, 50)
        if slow:
            extra = itertools.cycle(urls(40, 1, "slow"))
            mixed = [[u, next(extra)] if n % 50 == 0 else [u] for n, u in enumerate(pages)]
            pages = list(itertools.chain.from_iterable(mixed))
        await world.run(pages, concurrency=32, target=target, queue={"lane_concurrency": 4})
        return max(max(at) for host, at in world.ended.items() if host.startswith("h"))

    assert await fast_end(True) <= 1.3 * await fast_end(False)


# --- the breaker -------------------------------------------------------------------------------


def failing_until(world_of: list[World], recovers_at: float) -> Callable[[RequestMeta], Any]:
    def answer(request: RequestMeta) -> Any:
        if world_of[0].clock.monotonic() < recovers_at:
            raise FetchError("503")
        return page(request)

    return answer


def broken_world(recovers_at: float) -> World:
    worlds: list[World] = []
    worlds.append(World(failing_until(worlds, recovers_at), lambda host: 0.01))
    return worlds[0]


@pytest.mark.parametrize("processes", [1, 3])
async def test_a_host_that_fails_is_left_alone_and_tried_by_one(processes: int) -> None:
    world = broken_world(recovers_at=60.0)
    await world.run(
        urls(40, 1), processes=processes, queue={"max_attempts": 1_000, "lane_concurrency": 8}
    )
    (begun,) = world.begun.values()
    shut = world.of(LaneShut)
    assert [round(event.duration) for event in shut] == [5, 10, 20, 40]
    # Before it opened: ten in a row, and what was on its way then. After: one probe each time.
    first = [at for at in begun if at < 4.9]
    probes = [at for at in begun if 4.9 <= at < 60.0]
    assert 10 <= len(first) <= 10 + 8
    assert len(probes) == 3
    assert len(world.of(LaneRecovered)) == 1
    assert world.most_busy["h0.test"] <= 8
    stats = await accounted(KVStoreQueue(world.store, "fetch:test", clock=world.clock))
    assert stats.completed == 40


async def test_after_it_recovered_the_host_has_its_places_again() -> None:
    world = broken_world(recovers_at=7.0)
    await world.run(urls(200, 1), queue={"max_attempts": 1_000, "lane_concurrency": 8})
    late = [at for at in world.begun["h0.test"] if at > 15.0]
    assert len(late) > 150
    assert late[-1] - late[0] < 3.0


async def test_a_few_failures_never_open_it() -> None:
    numbers = itertools.count()

    def answer(request: RequestMeta) -> Any:
        if next(numbers) % 50 == 49:
            raise FetchError("503")
        return page(request)

    world = World(answer, lambda host: 0.01)
    await world.run(urls(3_000, 1), queue={"lane_concurrency": 8}, concurrency=8)
    assert world.of(LaneShut) == []


async def test_one_failing_host_does_not_shut_another() -> None:
    def answer(request: RequestMeta) -> Any:
        if request.url.host == "h0.test":
            raise FetchError("503")
        return page(request)

    world = World(answer, lambda host: 0.01)
    await world.run(urls(60, 2), queue={"max_attempts": 1})
    assert {event.lane for event in world.of(LaneShut)} == {"h0.test"}


async def test_the_breaker_can_be_switched_off() -> None:
    world = broken_world(recovers_at=5.0)
    never = BreakerOptions(failures=0)
    await world.run(urls(40, 1), breaker=never, queue={"max_attempts": 1_000})
    assert world.of(LaneShut) == []


async def test_a_lane_that_should_be_shut_is_shut_by_whoever_notices() -> None:
    """Who opened the breaker died before it shut the lane."""
    world = broken_world(recovers_at=1e9)
    queue = KVStoreQueue(world.store, "fetch:test", clock=world.clock)
    now = world.clock.store_now()
    await queue.swap_checkpoint("breaker:h0.test", None, ["x", 0, [], 1, now - 1, now + 4])
    await queue.close()
    await world.run(urls(3, 1), queue={"max_attempts": 1})
    assert world.of(LaneShut)[0].duration == pytest.approx(4.0, abs=0.2)


async def test_whoever_succeeds_closes_it_for_all(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """One process opened it; another one, that knew the host as well, gets the probe."""
    told: list[Event] = []
    queues = [make_queue(lane_concurrency=8), make_queue()]
    options = BreakerOptions(failures=2)
    breakers = [Breakers(q, "fetch:test", options, told.append) for q in queues]
    await queues[0].enqueue([Entry(n, lane="host") for n in range(30)])
    for who, good in [(1, False), (1, True), (0, False), (0, False)]:
        (lease,) = await queues[who].lease()
        await (breakers[who].note_good if good else breakers[who].note_bad)(lease)
        await lease.complete()
    clock.advance(6.0)
    (probe,) = await queues[1].lease(9)
    await breakers[1].note_good(probe)
    await probe.complete()
    assert [type(event) for event in told] == [LaneShut, LaneRecovered]
    assert len(await queues[1].lease(9)) == 8


async def test_breakers_are_shared_by_every_store(make_queue: MakeQueue) -> None:
    """Failures that two processes saw count together."""
    queues = [make_queue(), make_queue()]
    told: list[Event] = []
    breakers = [Breakers(q, "fetch:test", BreakerOptions(), told.append) for q in queues]
    await queues[0].enqueue([Entry(n, lane="host") for n in range(30)])
    for n in range(10):
        assert told == []
        (lease,) = await queues[n % 2].lease()
        await breakers[n % 2].note_bad(lease)
        await lease.complete()
    (shut,) = told
    assert isinstance(shut, LaneShut)
    assert (shut.lane, shut.duration) == ("host", pytest.approx(5.0, abs=0.1))
    assert await queues[1].lease() == []


async def opened_and_recovered(
    make_queue: MakeQueue, clock: ManualClock, between: Callable[[KVStoreQueue], Awaitable[None]]
) -> KVStoreQueue:
    """A lane whose breaker opened and closed; ``between`` happens after the leases were taken."""
    queue = make_queue(lane_concurrency=8)
    breakers = Breakers(queue, "fetch:test", BreakerOptions(failures=2), lambda _: None)
    await queue.enqueue([Entry(n, lane="host") for n in range(30)])
    leases = await queue.lease(2)
    await between(queue)
    for lease in leases:
        await breakers.note_bad(lease)
        await lease.complete()
    clock.advance(30.0)
    (probe,) = await queue.lease()
    await breakers.note_good(probe)
    await probe.complete()
    return queue


async def test_a_breaker_leaves_the_pace_of_its_host_alone(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    async def crawl_delay(queue: KVStoreQueue) -> None:
        await queue.pace("host", interval=10.0)

    queue = await opened_and_recovered(make_queue, clock, crawl_delay)
    clock.advance(30.0)
    assert len(await queue.lease(9)) == 1
    assert await queue.lease(9) == []


async def test_a_breaker_does_not_make_the_usual_interval_its_hosts_own(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    async def nothing(_: KVStoreQueue) -> None: ...

    await opened_and_recovered(make_queue, clock, nothing)
    slower = make_queue(lane_interval=5.0, update=True)
    clock.advance(30.0)
    assert [len(await slower.lease(9)) for _ in range(2)] == [1, 0]


async def test_a_lane_whose_rescuer_died_gets_its_places_back(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """Who closed the breaker was killed before it lifted the limit."""
    queue = make_queue(lane_concurrency=8)
    await queue.enqueue([Entry(n, lane="host") for n in range(30)])
    await queue.limit("host", 1)
    await queue.swap_checkpoint("breaker:host", None, ["x", 0, [], 0, 0.0, 0.0])
    breakers = Breakers(queue, "fetch:test", BreakerOptions(), lambda _: None)
    (lease,) = await queue.lease(9)
    await breakers.note_good(lease)
    assert len(await queue.lease(9)) == 7


async def test_who_reads_a_breaker_may_find_it_read_anew_by_others(
    make_queue: MakeQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that end together as a host recovers: each has another limit, and knows better."""
    queue = make_queue(lane_concurrency=8)
    await queue.enqueue([Entry(n, lane="host") for n in range(30)])
    await queue.limit("host", 1)
    await queue.swap_checkpoint("breaker:host", None, ["x", 0, [], 0, 0.0, 0.0])
    breakers = Breakers(queue, "fetch:test", BreakerOptions(), lambda _: None)
    (probe,) = await queue.lease(9)
    lift = queue.limit

    async def lift_and_let_another_end(lane: str, most: int | None) -> None:
        await lift(lane, most)
        (other,) = await queue.lease(1)
        await breakers.note_good(other)

    monkeypatch.setattr(queue, "limit", lift_and_let_another_end)
    await breakers.note_good(probe)
    assert len(await queue.lease(9)) == 6


async def test_of_hosts_without_end_so_many_are_remembered(
    make_queue: MakeQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_fetcher_core.fetcher.breakers._MOST_LANES", 10)
    queue = make_queue()
    breakers = Breakers(queue, "fetch:test", BreakerOptions(), lambda _: None)
    await queue.enqueue([Entry(n, lane=f"host {n}") for n in range(60)])
    for number, lease in enumerate(await queue.lease(60)):
        await (breakers.note_good if number % 2 else breakers.note_bad)(lease)
    assert everything_held_by(breakers) <= 2 * 10


def everything_held_by(breakers: Breakers) -> int:
    return sum(len(one) for one in vars(breakers).values() if isinstance(one, dict))


async def test_with_one_place_a_breaker_is_closed_by_whoever_succeeds(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queues = [make_queue(lane_concurrency=1), make_queue()]
    told: list[Event] = []
    options = BreakerOptions(failures=2)
    breakers = [Breakers(q, "fetch:test", options, told.append) for q in queues]
    await queues[0].enqueue([Entry(n, lane="host") for n in range(30)])
    for who, good in [(1, True), (0, False), (0, False)]:
        (lease,) = await queues[who].lease()
        await (breakers[who].note_good if good else breakers[who].note_bad)(lease)
        await lease.complete()
    clock.advance(6.0)
    (probe,) = await queues[1].lease()
    await breakers[1].note_good(probe)
    assert [type(event) for event in told] == [LaneShut, LaneRecovered]


@pytest.mark.parametrize("probes", [1, 3])
async def test_a_locator_has_one_turn_at_a_time_whatever_becomes_of_its_provider(
    make_queue: MakeQueue, clock: ManualClock, probes: int
) -> None:
    """The limit of its lane is not that of a breaker's probes, and is never lifted."""
    queue, lane = make_queue(lane_concurrency=8), turn_lane("0-Api")
    breakers = Breakers(
        queue, "fetch:test", BreakerOptions(failures=2, probes=probes), lambda _: None
    )
    await queue.pace(lane, interval=0.0, limit=1)
    await queue.enqueue([Entry(n, lane=lane) for n in range(9)])
    for note in (breakers.note_bad, breakers.note_bad, breakers.note_bad, breakers.note_good):
        (lease,) = await queue.lease(9)
        await note(lease)
        await lease.complete()
        clock.advance(60.0)
    assert len(await queue.lease(9)) == 1


async def test_a_provider_that_answers_after_each_failure_never_fails_in_a_row() -> None:
    clock, told = ManualClock(), list[Event]()

    class Flaky(ApiLocator):
        asked = 0

        async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
            self.asked += 1
            if self.asked % 2:
                raise FetchError("503")
            return await super().get_next_urls(ctx)

    queue = QueueOptions(retry=FixedDelays((10.0,)))
    run = Fetcher(FetcherOptions(queue=queue), clock=clock, subscriber=told.append)
    locator = Flaky(FakeApi([[url(n)] for n in range(15)]))
    plan = plan_of(MemoryStore(clock=clock), [locator], Loader())
    (result,) = await in_virtual_time(clock, run.run(plan))
    assert (result.processed_count, result.stats.retried) == (15, 16)
    assert [event for event in told if isinstance(event, LaneShut)] == []
