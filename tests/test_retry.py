"""What follows a failure: the policies, and every way out of ``async with lease``."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core.core import DeathReason
from data_fetcher_core.errors import (
    ConfigurationError,
    FetchError,
    LeaseLost,
    StoreUnavailable,
)
from data_fetcher_core.events import Buried, Event, LeasesLost, Retried
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.queue.lease import Lease, LeaseState
from data_fetcher_core.retry import (
    Bury,
    ByException,
    Decision,
    Exponential,
    FixedDelays,
    Never,
    RetryIn,
    bounded,
)
from data_fetcher_core.testing import Fault, ManualClock, make_faulty
from tests.conftest import MakeQueue, OpenStore
from tests.harness import (
    accounted,
    beat_twice,
    client_of,
    impatient,
    items,
    letters,
    places,
    silence,
)

# --- the policies ------------------------------------------------------------------------------


def test_fixed_delays_and_the_last_for_all_that_follow() -> None:
    decided = [FixedDelays((1.0, 5.0, 30.0)).decide(n, None) for n in range(1, 6)]
    assert decided == [RetryIn(delay) for delay in (1.0, 5.0, 30.0, 30.0, 30.0)]


@pytest.mark.parametrize(
    "delays", [(), (-1.0,), (float("nan"),), (1.0, float("inf")), (True,), ("1",), 5]
)
def test_delays_that_cannot_be(delays: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"delays .*, not {re.escape(repr(delays))}$"):
        FixedDelays(delays)


def test_the_longest_delay_is_a_century() -> None:
    century = 100 * 365 * 86_400.0
    assert FixedDelays((century,)).decide(1, None) == RetryIn(century)


def test_a_number_that_is_none_is_named() -> None:
    with pytest.raises(ConfigurationError, match="first must be a number from 0 up, not '5 s'"):
        Exponential(first="5 s")  # type: ignore[arg-type]


def test_the_shortest_that_can_be() -> None:
    assert FixedDelays((0.0,)).decide(1, None) == RetryIn(0.0)
    assert Exponential(first=0.0).decide(1, None) == RetryIn(0.0)
    assert Exponential(first=1.0, most=1.0, jitter=0.0).decide(9, None) == RetryIn(1.0)


def test_exponential_doubles_up_to_the_most() -> None:
    policy = Exponential(first=1.0, factor=2.0, most=10.0, jitter=0.0)
    delays = [policy.decide(n, None) for n in range(1, 7)]
    assert delays == [RetryIn(delay) for delay in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0)]


@given(
    first=st.floats(0, 100),
    factor=st.floats(1, 10),
    jitter=st.floats(0, 1),
    attempts=st.integers(1, 10**6),
    chance=st.floats(0, 1),
)
def test_exponential_stays_within_its_bounds(
    first: float, factor: float, jitter: float, attempts: int, chance: float
) -> None:
    policy = Exponential(first, factor, 300.0, jitter, chance=lambda: chance)
    decision = policy.decide(attempts, None)
    assert isinstance(decision, RetryIn)
    assert 0 <= decision.delay <= 300.0
    full = min(300.0, first * factor ** min(attempts - 1, 60))
    assert decision.delay >= full * (1 - jitter) - 1e-9


@pytest.mark.parametrize(
    ("policy", "delay"),
    [
        (Exponential(factor=1.01, most=300.0, jitter=0.0), 300.0),
        (Exponential(factor=1e9, most=300.0, jitter=0.0), 300.0),
        (Exponential(first=0.0, factor=1e9, jitter=0.0), 0.0),
        (Exponential(factor=1.0, jitter=0.0), 1.0),
    ],
    ids=repr,
)
def test_however_slowly_or_fast_it_grows_it_comes_to_the_most(
    policy: Exponential, delay: float
) -> None:
    assert policy.decide(1_000, None) == RetryIn(delay)


@pytest.mark.parametrize(
    "bad",
    [
        {"first": -1.0},
        {"first": 2.0, "most": 1.0},
        {"most": float("inf")},
        {"factor": 0.5},
        {"factor": float("nan")},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"first": float("nan")},
    ],
    ids=str,
)
def test_an_exponential_that_cannot_be(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"jitter must|from 0 up|first must not exceed"):
        Exponential(**bad)


def test_the_nearest_class_of_an_exception_decides() -> None:
    policy = ByException(
        {OSError: FixedDelays((7.0,)), ConnectionError: Never("refused"), Exception: Never()},
        otherwise=FixedDelays((9.0,)),
    )
    assert policy.decide(1, ConnectionResetError()) == Bury("refused")
    assert policy.decide(1, FileNotFoundError()) == RetryIn(7.0)
    assert policy.decide(1, ValueError()) == Bury(Never().detail)
    assert policy.decide(1, KeyboardInterrupt()) == RetryIn(9.0)
    assert policy.decide(1, None) == RetryIn(9.0)


def test_a_policy_of_a_policy_is_told_what_went_wrong() -> None:
    inner = ByException({ConnectionError: Never("refused")})
    policy = ByException({OSError: inner}, otherwise=inner)
    assert policy.decide(1, ConnectionResetError()) == Bury("refused")
    assert ByException({}, otherwise=inner).decide(1, ConnectionError()) == Bury("refused")


@given(st.integers(1, 20), st.integers(1, 20))
def test_attempts_are_bounded_whatever_the_policy_says(attempts: int, most: int) -> None:
    decision: Decision = bounded(FixedDelays((1.0,)), attempts, most, None)
    assert isinstance(decision, Bury) == (attempts >= most)


# --- the ways out of a lease -------------------------------------------------------------------


async def one_lease(queue: KVStoreQueue, item: Any = "x") -> Any:
    await queue.enqueue([item])
    (lease,) = await queue.lease()
    return lease


async def test_success_completes(queue: KVStoreQueue) -> None:
    async with await one_lease(queue) as lease:
        assert lease.state is LeaseState.HELD
    assert lease.state is LeaseState.SETTLED
    assert (await accounted(queue)).completed == 1


@pytest.mark.parametrize("how", ["complete", "release", "bury", "give_back"])
async def test_what_was_settled_inside_is_left_alone(queue: KVStoreQueue, how: str) -> None:
    async with await one_lease(queue) as lease:
        await getattr(lease, how)()
    expected: dict[str, dict[str, int]] = {
        "complete": {},
        "release": {"ready": 1},
        "bury": {"dead": 1},
        "give_back": {"ready": 1},
    }
    assert await places(queue) == expected[how]


async def test_an_error_after_settling_inside_is_the_callers(queue: KVStoreQueue) -> None:
    """Settled, so nothing to decide; hiding the error would hide a bug."""

    async def work() -> None:
        async with await one_lease(queue) as lease:
            await lease.complete()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert (await accounted(queue)).completed == 1


async def test_a_failure_asks_the_policy_and_goes_no_further(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    told: list[Event] = []
    queue = make_queue(subscriber=told.append, retry=FixedDelays((2.0,)))
    async with await one_lease(queue) as lease:
        raise ValueError("no page")
    assert await places(queue) == {"delayed": 1}
    assert told == [Retried("fetch:test", lease.id, 1, 2.0, "no page")]
    clock.advance(2.0)
    (again,) = await queue.lease()
    assert again.attempts == 1
    assert [(f.kind, f.message, f.at) for f in again.failures] == [
        ("ValueError", "no page", clock.store_now() - 2.0)
    ]


async def test_a_policy_that_buries(make_queue: MakeQueue) -> None:
    told: list[Event] = []
    queue = make_queue(subscriber=told.append, retry=Never("hopeless"))
    async with await one_lease(queue) as lease:
        raise ValueError("no page")
    (letter,) = await letters(queue)
    assert (letter.reason, letter.detail, letter.attempts) == (DeathReason.FAILED, "hopeless", 1)
    assert told == [Buried("fetch:test", lease.id, "failed", "no page (hopeless)")]


async def test_attempts_used_up_bury(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = make_queue(max_attempts=3, retry=FixedDelays((1.0,)))
    await queue.enqueue(["x"])
    for attempt in range(3):
        (lease,) = await queue.lease()
        assert lease.attempts == attempt
        async with lease:
            raise ValueError(f"failure {attempt}")
        clock.advance(1.0)
    (letter,) = await letters(queue)
    assert letter.attempts == 3
    assert "3" in letter.detail
    assert [failure.message for failure in letter.failures] == [f"failure {n}" for n in range(3)]


async def test_a_release_by_hand_is_bounded_too(make_queue: MakeQueue) -> None:
    queue = make_queue(max_attempts=2)
    await queue.enqueue(["x"])
    for _ in range(2):
        (lease,) = await queue.lease()
        await lease.release(error="no")
    assert await places(queue) == {"dead": 1}


async def test_the_last_five_failures_are_kept(make_queue: MakeQueue) -> None:
    queue = make_queue(max_attempts=9)
    await queue.enqueue(["x"])
    for number in range(9):
        (lease,) = await queue.lease()
        await lease.release(error=f"failure {number}")
    (letter,) = await letters(queue)
    assert [failure.message for failure in letter.failures] == [f"failure {n}" for n in range(4, 9)]


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
async def test_what_ends_the_process_gives_back(queue: KVStoreQueue, leaving: Any) -> None:
    lease = await one_lease(queue)
    with suppress(leaving):
        async with lease:
            raise leaving
        raise AssertionError("it was swallowed")
    (again,) = await queue.lease()
    assert (again.attempts, again.failures) == (0, ())


async def test_a_failing_store_gives_back_and_is_told(queue: KVStoreQueue) -> None:
    """The page is not to blame: no attempt is spent, and the worker learns of it."""

    async def work() -> None:
        async with await one_lease(queue):
            raise StoreUnavailable("elsewhere")

    with pytest.raises(StoreUnavailable, match="elsewhere"):
        await work()
    (again,) = await queue.lease()
    assert again.attempts == 0


async def lost_lease(queue: KVStoreQueue, survivor: KVStoreQueue, clock: ManualClock) -> Lease:
    """One that was taken from a process that was silent for too long."""
    lease: Lease = await one_lease(queue)
    await (await client_of(queue)).tasks.cancel()
    await silence(survivor, clock)
    return lease


async def test_a_lease_lost_inside_is_no_failure(make_queue: MakeQueue, clock: ManualClock) -> None:
    told: list[Event] = []
    queue, survivor = make_queue(subscriber=told.append), make_queue()
    lease = await lost_lease(queue, survivor, clock)
    async with lease:
        await lease.complete()
    assert lease.state is LeaseState.LOST
    assert LeasesLost("fetch:test", (lease.id,)) in told
    assert await places(survivor) == {"ready": 1}


async def test_a_lease_lost_before_the_end_is_no_failure(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, survivor = make_queue(), make_queue()
    lease = await lost_lease(queue, survivor, clock)
    async with lease:
        pass
    assert lease.state is LeaseState.LOST
    assert (await accounted(survivor)).completed == 0


@pytest.mark.parametrize("noticed", [False, True])
async def test_a_page_that_fails_after_its_lease_was_lost(
    noticed: bool, make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, survivor = make_queue(), make_queue()
    lease = await lost_lease(queue, survivor, clock)
    async with lease:
        if noticed:
            await beat_twice(queue)
            assert lease.state is LeaseState.LOST
        raise ValueError("too late")
    (again,) = await survivor.lease()
    assert (again.attempts, again.failures) == (0, ())


async def test_cancelled_after_its_lease_was_lost_it_is_cancelled(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, survivor = make_queue(), make_queue()
    lease = await lost_lease(queue, survivor, clock)

    async def work() -> None:
        async with lease:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await work()


async def test_an_error_in_the_page_is_not_lost_when_the_store_is_away(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    """Neither settled nor forgotten: it stays leased, and the store's error is told."""
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    lease = await one_lease(queue)
    await impatient(queue)
    for call in range(1, 500):
        store.faults.plan(Fault.BEFORE, store.verb, call)

    async def work() -> None:
        async with lease:
            raise ValueError("no page")

    with pytest.raises(StoreUnavailable):
        await work()
    assert lease.state is LeaseState.HELD
    store.faults.heal()
    await impatient(queue, 10.0)
    await lease.release(error="again")
    assert await places(queue) == {"ready": 1}


async def test_children_are_enqueued_where_the_page_says(queue: KVStoreQueue) -> None:
    async with await one_lease(queue, "page") as lease:
        await lease.complete(enqueue=(f"link{n}" for n in range(3)))
    assert items(await queue.lease(9)) == ["link0", "link1", "link2"]


async def test_a_generator_of_children_that_raises_is_a_failure(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    def links() -> Any:
        yield "link"
        raise ValueError("bad page")

    async with await one_lease(queue) as lease:
        await lease.complete(enqueue=links())
    clock.advance(60.0)
    (again,) = await queue.lease(9)
    assert (again.item, again.attempts) == ("x", 1)


async def test_a_fetch_error_tells_what_it_knows() -> None:
    error = FetchError("429", retryable=True, retry_after=30.0)
    assert (error.retryable, error.retry_after, str(error)) == (True, 30.0, "429")
    assert (FetchError("x").retryable, FetchError("x").retry_after) == (True, None)


class Odd:
    """A policy of somebody else."""

    def __init__(self, decision: Any) -> None:
        self.decision = decision

    def decide(self, attempts: int, error: BaseException | None) -> Any:
        if isinstance(self.decision, Exception):
            raise self.decision
        return self.decision


@pytest.mark.parametrize(
    "decision",
    [RetryIn(-1.0), RetryIn(float("nan")), RetryIn(float("inf")), None, KeyError("a bug")],
    ids=repr,
)
async def test_a_policy_with_a_bug_loses_nothing(make_queue: MakeQueue, decision: Any) -> None:
    queue = make_queue(retry=Odd(decision))
    lease = await one_lease(queue)
    with suppress(Exception):
        async with lease:
            raise ValueError("no page")
    del lease
    await beat_twice(queue)
    stats = await accounted(queue)
    assert stats.ready + stats.delayed + stats.dead + stats.leased == 1


async def test_give_back_is_as_if_it_had_never_been_leased(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(4))
    first, second, third = await queue.lease(3)
    await third.give_back()
    await second.give_back()
    await first.give_back()
    again = await queue.lease(9)
    assert items(again) == [0, 1, 2, 3]
    assert {(lease.attempts, lease.deaths, lease.failures) for lease in again} == {(0, 0, ())}


async def test_a_settled_lease_says_so(queue: KVStoreQueue) -> None:
    lease = await one_lease(queue)
    await lease.complete()
    with pytest.raises(LeaseLost, match="was settled before"):
        await lease.release()
