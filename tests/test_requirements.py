"""What docs/requirements.md lists and no other test shows on its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from data_fetcher_core import Entry, Priority
from data_fetcher_core.clock import SYSTEM_CLOCK
from data_fetcher_core.core import DeathReason
from data_fetcher_core.errors import FetchError
from data_fetcher_core.events import Buried, ConsumerReaped, Event, Retried
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue
from data_fetcher_core.retry import Decision, FixedDelays, RetryIn
from data_fetcher_core.testing import ManualClock
from tests.conftest import MakeQueue, OpenStore
from tests.harness import accounted, background, items, letters, outlive, places, settled

# --- ready and delayed -------------------------------------------------------------------------


async def test_what_is_not_due_holds_nothing_up(queue: KVStoreQueue, clock: ManualClock) -> None:
    """However urgent it will be."""
    await queue.enqueue(["urgent"] * 50, delay=60.0, priority=Priority.CRITICAL)
    await queue.enqueue(["later"], priority=Priority.VERY_LOW)
    assert await queue.dequeue(9) == ["later"]
    clock.advance(60.0)
    await queue.enqueue(["now"])
    assert await queue.dequeue(51) == ["urgent"] * 50 + ["now"]


async def test_a_producer_may_be_given_a_delay_of_its_own(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    trust = {"known": 0.0, "new": 30.0}
    await queue.enqueue(Entry(name, lane=name, delay=trust[name]) for name in ("new", "known"))
    assert await queue.dequeue(9) == ["known"]
    clock.advance(30.0)
    assert await queue.dequeue(9) == ["new"]


class AsTheHostSays:
    """A host that tells when to come back is believed."""

    def decide(self, attempts: int, error: BaseException | None) -> Decision:
        told = error.retry_after if isinstance(error, FetchError) else None
        return FixedDelays().decide(attempts, error) if told is None else RetryIn(told)


async def test_a_rate_limit_delays_the_request_and_shuts_its_lane(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = make_queue(retry=AsTheHostSays())
    await queue.enqueue([Entry("first", lane="a"), Entry("second", lane="a"), Entry("b", lane="b")])
    (lease,) = await queue.lease(lanes=["a"])
    async with lease:
        await queue.shut("a", 90.0)
        raise FetchError("429", retry_after=120.0)
    assert await queue.dequeue(9) == ["b"]
    clock.advance(90.0)
    assert await queue.dequeue(9) == ["second"]
    clock.advance(30.0)
    assert await queue.dequeue(9) == ["first"]


# --- order -------------------------------------------------------------------------------------


async def test_the_caller_may_score_what_it_enqueues(queue: KVStoreQueue) -> None:
    def score(clicks: int) -> Priority:
        return Priority.VERY_HIGH if clicks > 1_000 else Priority.NORMAL

    await queue.enqueue(Entry(clicks, priority=score(clicks)) for clicks in (3, 5_000, 20))
    assert await queue.dequeue(9) == [5_000, 3, 20]


async def test_critical_comes_first_in_its_lane_and_takes_no_other_lanes_turn(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    await queue.enqueue(["a old"], lane="a", priority=Priority.VERY_HIGH)
    await queue.enqueue(["b0", "b1"], lane="b")
    clock.advance(86_400.0)
    await queue.enqueue(["a0!", "a1!"], lane="a", priority=Priority.CRITICAL)
    assert await queue.dequeue(9) == ["a0!", "b0", "a1!", "b1", "a old"]


async def test_turns_among_the_assigned_then_among_those_to_steal_from(
    queue: KVStoreQueue,
) -> None:
    for lane in "abcd":
        await queue.enqueue([f"{lane}{n}" for n in range(2)], lane=lane)
    taken = items(await queue.lease(9, lanes=["a", "b"], steal=["c", "d"]))
    assert taken == ["a0", "b0", "a1", "b1", "c0", "d0", "c1", "d1"]


# --- payloads ----------------------------------------------------------------------------------


async def test_a_correlation_id_goes_with_the_request_through_every_move(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    told: list[Event] = []
    queue, other = make_queue(), make_queue(subscriber=told.append, retry=FixedDelays((1.0,)))
    job = {"report": 101, "correlation_id": "trace-7"}
    await queue.enqueue([Entry(job, id="trace-7")], delay=1.0)
    clock.advance(1.0)
    await queue.lease()
    await outlive(queue, other, clock)
    (lease,) = await other.lease()
    async with lease:
        raise ValueError("no")
    clock.advance(1.0)
    (lease,) = await other.lease()
    await lease.bury("gone")
    (letter,) = await letters(other)
    assert (letter.id, letter.item) == ("trace-7", job)
    assert await other.requeue(["trace-7"]) == 1
    (lease,) = await other.lease()
    assert (lease.id, lease.item) == ("trace-7", job)
    reaped, retried, buried = told
    assert isinstance(reaped, ConsumerReaped)
    assert isinstance(retried, Retried)
    assert isinstance(buried, Buried)
    assert retried.request_id == buried.request_id == "trace-7"


@dataclass(frozen=True)
class Resize:
    width: int


@dataclass(frozen=True)
class Notify:
    whom: str


COMMANDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Resize, Notify)}


class CommandSerializer:
    """A command by its name and its arguments; only names that are known are read."""

    def dumps(self, obj: Any) -> str:
        return json.dumps([type(obj).__name__, asdict(obj)])

    def loads(self, data: str) -> Any:
        name, arguments = json.loads(data)
        return COMMANDS[name](**arguments)


async def test_a_queue_may_carry_commands(make_queue: MakeQueue) -> None:
    queue = make_queue(serializer=CommandSerializer())
    commands = [Resize(640), Notify("a@b.example")]
    await queue.enqueue(commands)
    assert await queue.dequeue(9) == commands


# --- dead letters ------------------------------------------------------------------------------


class Unreadable(JSONSerializer):
    def loads(self, data: str) -> Any:
        if "corrupt" in data:
            raise ValueError(data)
        return super().loads(data)


async def test_all_who_died_are_in_one_place_with_their_reasons(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    own: dict[str, Any] = {"serializer": Unreadable(), "max_deaths": 1}
    queue, other = make_queue(**own), make_queue(**own)
    for reason in ("failed", "poisoned", "corrupt"):
        await queue.enqueue([Entry(reason, id=reason)])
    await queue.enqueue([Entry("expired", id="expired", expires_in=1.0)])
    (failed,) = await queue.lease()
    await failed.bury("no")
    (poisoned,) = await queue.lease()
    await outlive(queue, other, clock)
    assert await other.dequeue(9) == []
    await settled(other)
    assert (failed.item, poisoned.item) == ("failed", "poisoned")
    assert {letter.id: letter.reason for letter in await letters(other)} == {
        reason.value: reason for reason in DeathReason
    }
    assert await places(other) == {"dead": 4}


# --- counting, and many at once ----------------------------------------------------------------


async def test_two_looks_at_the_totals_tell_the_rate(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    await queue.enqueue(range(30))
    await queue.dequeue(5)
    before = await queue.stats()
    clock.advance(10.0)
    await queue.enqueue(range(40))
    await queue.dequeue(20)
    after = await queue.stats()
    assert (before.size, after.size) == (25, 45)
    assert (after.completed - before.completed) / 10.0 == 2.0
    assert (after.enqueued - before.enqueued) / 10.0 == 4.0


async def _work_and_put_back(queue: KVStoreQueue, rounds: int) -> None:
    for number in range(rounds):
        for lease in await queue.lease(3):
            if number % 3 == 0:
                await lease.release(delay=0.001)
            else:
                await lease.give_back()


async def test_every_look_amid_work_adds_up(make_queue: MakeQueue) -> None:
    """Nothing ends here: a look that is not of one instant would miss some or see double."""
    queues = [make_queue(max_attempts=10_000, clock=SYSTEM_CLOCK) for _ in range(3)]
    await queues[0].enqueue(range(20))
    looks = 0
    async with background(_all(_work_and_put_back(queue, 60) for queue in queues)) as work:
        while not work.done():
            stats, snapshot = await queues[0].stats(), await queues[0].snapshot()
            assert stats.ready + stats.delayed + stats.leased == 20, stats
            assert snapshot["depth"] == snapshot["ready"] + snapshot["scheduled"] <= 20
            looks += 1
            await asyncio.sleep(0)  # memory answers without a suspension
        await work
    assert looks > 1
    await accounted(queues[0])


async def _all(work: Iterable[Any]) -> None:
    await asyncio.gather(*work)


@pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)
async def test_threads_share_a_run(make_queue: MakeQueue, store_maker: OpenStore) -> None:
    """Each with a loop, a store and a queue of its own; memory is for the tasks of one loop."""
    queue = make_queue(clock=SYSTEM_CLOCK)
    await queue.enqueue(range(90))

    async def work() -> list[Any]:
        async with store_maker() as store, KVStoreQueue(store, "fetch:test") as own:
            taken = []
            async for lease in own.leases(prefetch=4, until="drained"):
                async with lease:
                    await own.snapshot()
                    taken.append(lease.item)
            return taken

    threads = (asyncio.to_thread(lambda: asyncio.run(work())) for _ in range(3))
    shares = await asyncio.gather(*threads)
    assert sorted(item for share in shares for item in share) == list(range(90))
    assert (await accounted(queue)).completed == 90
