"""Who comes next: priorities with ageing, lanes in turn, gates, paces, limits and delays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core import Entry, Priority
from data_fetcher_core.core import DeathReason
from data_fetcher_core.errors import (
    ValidationError,
)
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.queue.engine import STEP
from data_fetcher_core.queue.ordering import Head, choose
from data_fetcher_core.testing import ManualClock
from tests.conftest import MakeQueue
from tests.evidence import Evidence
from tests.harness import (
    accounted,
    items,
    letters,
)
from tests.properties import in_memory, quick

HOUR = 3600.0


# --- inside a lane -----------------------------------------------------------------


async def test_by_priority_then_first_in_first_out(queue: KVStoreQueue) -> None:
    for priority in (3, 1, 6, 2, 5, 4):
        await queue.enqueue([f"{priority}a", f"{priority}b"], priority=priority)
    order = [f"{priority}{letter}" for priority in (6, 5, 4, 3, 2, 1) for letter in "ab"]
    assert await queue.peek(99) == order
    assert [item for _ in order for item in await queue.dequeue()] == order


arrivals = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0, 30.0, 59.0, 60.0, 61.0, 200.0]), st.integers(1, 6)),
    min_size=1,
    max_size=25,
)


@given(arrivals, st.sampled_from([0.0, 1.0, 60.0]))
@quick(80)
def test_nothing_waits_behind_more_than_its_head_start(
    arriving: Sequence[tuple[float, int]], step: float
) -> None:
    """Of two, the later one goes first only if its priority is worth the difference in time."""

    async def check(queue: KVStoreQueue, clock: ManualClock) -> None:
        known = []
        for number, (pause, priority) in enumerate(arriving):
            clock.advance(pause)
            await queue.enqueue([number], priority=priority)
            known.append((clock.monotonic(), priority))
        order = await queue.dequeue(99)
        for place, first in enumerate(order):
            for behind in order[place + 1 :]:
                _check_pair(known[first], known[behind], step, first < behind)

    in_memory(check, ageing_step=step)


def _check_pair(
    first: tuple[float, int], behind: tuple[float, int], step: float, in_order: bool
) -> None:
    (served_at, served), (waiting_at, waiting) = first, behind
    if served == 6:
        return
    assert waiting != 6, "CRITICAL comes first"
    assert served_at - waiting_at <= (served - waiting) * step or in_order


@pytest.mark.parametrize("burst", [1, 2, 5])
def test_one_other_goes_after_so_many_critical_ones(burst: int) -> None:
    critical, other = Head(6, 9), Head(1, 9)
    assert choose([other, critical], 1, burst, burst - 1) == critical
    assert choose([other, critical], 1, burst, burst) == other
    assert choose([critical], 1, burst, burst) == critical
    assert choose([other, critical], 1, 0, 99) == critical


def test_at_one_instant_the_higher_priority_goes_first() -> None:
    heads = [Head(priority, 7) for priority in (2, 5, 1)]
    assert choose(heads, 0, 0, 0) == Head(5, 7)
    assert choose([*heads, Head(1, 6)], 0, 0, 0) == Head(1, 6)


async def test_a_flood_of_high_priority_does_not_starve_the_low(
    make_queue: MakeQueue, clock: ManualClock, shows: Evidence
) -> None:
    queue = make_queue(ageing_step=10.0)
    await queue.enqueue(["low"], priority=Priority.VERY_LOW)
    served: list[str] = []
    waited = -1
    while "low" not in served:
        waited += 1
        await queue.enqueue([f"flood{waited}"] * 2, priority=Priority.VERY_HIGH)
        served += await queue.dequeue(2)
        clock.advance(1.0)
        assert waited < 100
    assert waited > 30, "the urgent ones go first"
    shows("F50", "waited, with a head start of 40 s against it", waited, at_most=42, unit="s")


async def test_critical_before_all_and_its_burst(make_queue: MakeQueue) -> None:
    queue = make_queue(critical_burst=2)
    await queue.enqueue([f"c{n}" for n in range(5)], priority=Priority.CRITICAL)
    await queue.enqueue([f"n{n}" for n in range(3)])
    expected = ["c0", "c1", "n0", "c2", "c3", "n1", "c4", "n2"]
    assert await queue.peek(99) == expected
    assert [item for _ in expected for item in await queue.dequeue()] == expected


async def test_lanes_take_turns_in_one_batch_and_in_many(make_queue: MakeQueue) -> None:
    for number, size in enumerate((60, 1, 7)):
        queue = make_queue(f"fetch:{number}")
        for lane in "abc":
            await queue.enqueue([lane] * 40, lane=lane)
        taken = [item for _ in range(60 // size) for item in await queue.dequeue(size)]
        shares = Counter(taken)
        assert max(shares.values()) - min(shares.values()) <= 1, shares


def jain(shares: Sequence[int]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


@given(
    st.dictionaries(st.text(max_size=4), st.integers(20, 60), min_size=2, max_size=12),
    st.integers(1, 30),
)
@quick(40)
def test_fairness_among_lanes_of_any_size(lanes: dict[str, int], size: int) -> None:
    async def check(queue: KVStoreQueue, _: ManualClock) -> None:
        for lane, count in lanes.items():
            await queue.enqueue([lane] * count, lane=lane)
        taken: list[str] = []
        while len(taken) < 20 * len(lanes):
            taken += await queue.dequeue(size)
        shares = Counter(taken[: 20 * len(lanes)])
        assert jain([shares[lane] for lane in lanes]) >= 0.95, shares

    in_memory(check)


async def test_lanes_are_counted_while_something_in_them_is_ready(queue: KVStoreQueue) -> None:
    async def lanes() -> int:
        return (await queue.stats()).lanes

    assert await lanes() == 0
    await queue.shut("shut", 60.0)
    names = ["a", "a", "b", "shut"]
    await queue.enqueue([Entry(name, lane=name) for name in names])
    assert await lanes() == 3
    held = await queue.lease(2)
    assert (sorted(items(held)), await lanes()) == (["a", "b"], 2)
    for lease in held:
        await lease.release(delay=5.0)
    assert await lanes() == 2
    assert items(await queue.lease(9)) == ["a"]
    assert await lanes() == 1
    await queue.clear()
    assert await lanes() == 0


async def test_a_newcomer_waits_no_longer_than_one_round(make_queue: MakeQueue) -> None:
    queue = make_queue()
    for lane in range(50):
        await queue.enqueue([f"old{lane}"] * 5, lane=str(lane))
    await queue.enqueue(["new"], lane="new")
    assert "new" in await queue.dequeue(51)


async def test_without_fairness_there_is_one_line(make_queue: MakeQueue) -> None:
    queue = make_queue(fair=False)
    await queue.enqueue([Entry(n, lane="a" if n < 5 else "b") for n in range(10)])
    assert await queue.dequeue(99) == list(range(10))


async def test_assigned_lanes_first_then_those_to_steal_from(queue: KVStoreQueue) -> None:
    await queue.enqueue([Entry(f"{lane}{n}", lane=lane) for n in range(2) for lane in "abcd"])
    taken = items(await queue.lease(9, lanes=["c", "a"], steal=["d"]))
    assert sorted(taken[:4]) == ["a0", "a1", "c0", "c1"]
    assert taken[4:] == ["d0", "d1"]
    assert await queue.lease(9, lanes=["a", "nowhere"]) == []
    assert await queue.peek(9) == ["b0", "b1"]


async def test_a_shut_lane_lets_thieves_work(queue: KVStoreQueue) -> None:
    await queue.enqueue(["a"], lane="a")
    await queue.enqueue(["b"], lane="b")
    await queue.shut("a", 60.0)
    assert items(await queue.lease(lanes=["a"], steal=["b"])) == ["b"]


async def test_lanes_and_steal_must_not_overlap(queue: KVStoreQueue) -> None:
    with pytest.raises(ValidationError, match=r"must not overlap: \['a'\]"):
        await queue.lease(lanes=["a", "b"], steal=["a", "c"])
    with pytest.raises(ValidationError, match=r"^steal needs lanes: those are tried first$"):
        await queue.lease(steal=["a"])


async def test_a_gate_outlives_the_emptiness_of_its_lane(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, other = make_queue(), make_queue()
    await queue.shut("a", 10.0)
    await other.enqueue(["late"], lane="a")
    clock.advance(9.999999)
    assert await other.lease() == []
    clock.advance(0.000001)
    assert items(await other.lease()) == ["late"]


async def test_shut_never_shortens_and_reopen_opens(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    await queue.enqueue(["x"], lane="a")
    await queue.shut("a", 60.0)
    await queue.shut("a", 1.0)
    clock.advance(2.0)
    assert await queue.lease() == []
    await queue.reopen("a")
    assert len(await queue.lease()) == 1


async def test_a_paced_lane_gives_one_in_an_interval_to_all_together(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queues = [make_queue(lane_interval=2.0), make_queue()]
    await queues[0].enqueue(range(10), lane="a")
    taken = []
    for tick in range(20):
        for queue in queues:
            taken += [(tick, item) for item in await queue.dequeue(5)]
        clock.advance(0.5)
    assert taken == [(4 * n, n) for n in range(5)]


async def test_a_burst_may_come_early_and_then_the_interval_holds(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = make_queue(lane_interval=1.0, lane_burst=3)
    await queue.enqueue(range(20), lane="a")
    assert len(await queue.dequeue(99)) == 4
    for _ in range(5):
        clock.advance(1.0)
        assert len(await queue.dequeue(99)) == 1
    clock.advance(100.0)
    assert len(await queue.dequeue(99)) == 4


async def test_a_lane_of_its_own_kind_may_have_no_pace_no_burst_and_no_limit(
    make_queue: MakeQueue,
) -> None:
    """Nothing is a choice, too: it is not taken for what the others have."""
    queue = make_queue(lane_interval=10.0, lane_burst=2, lane_concurrency=4)
    await queue.pace("free", interval=0.0, limit=0)
    await queue.pace("paced", burst=0)
    lanes = ("free", "paced", "other")
    await queue.enqueue([Entry(lane, lane=lane) for lane in lanes for _ in range(9)])
    assert Counter(items(await queue.lease(99))) == {"free": 9, "paced": 1, "other": 3}


async def test_a_limit_holds_for_all_together(make_queue: MakeQueue) -> None:
    first, second = make_queue(lane_concurrency=3), make_queue()
    await first.enqueue(range(9), lane="a")
    mine, theirs = await first.lease(2), await second.lease(9)
    assert (len(mine), len(theirs)) == (2, 1)
    await theirs[0].release(delay=1.0)
    assert len(await second.lease(9)) == 1


async def test_a_lane_gets_a_limit_of_its_own_and_keeps_its_pace(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = make_queue(lane_concurrency=3)
    await queue.pace("paced", interval=1.0)
    for lane in ("paced", "slow"):
        await queue.limit(lane, 2)
    await queue.enqueue([Entry(n, lane=n) for n in ("paced", "slow", "other") for _ in range(9)])
    assert Counter(items(await queue.lease(99))) == {"paced": 1, "slow": 2, "other": 3}
    await queue.limit("slow", None)
    clock.advance(1.0)
    assert Counter(items(await queue.lease(99))) == {"paced": 1, "slow": 1}
    clock.advance(1.0)
    assert await queue.lease(99) == []


# --- delays and expiry -------------------------------------------------------------------------


@given(st.lists(st.sampled_from([0.0, 1e-6, 0.001, 1.0, 5.0, 86_400.0]), min_size=1, max_size=10))
@quick(40)
def test_never_early_and_in_the_order_they_are_due(delays: list[float]) -> None:
    async def check(queue: KVStoreQueue, clock: ManualClock) -> None:
        for number, delay in enumerate(delays):
            await queue.enqueue([number], delay=delay)
        for instant in sorted(set(delays)):
            taken = await queue.dequeue(99)
            assert all(delays[number] <= clock.monotonic() for number in taken)
            clock.advance(max(instant - clock.monotonic(), 0.0))
            due = [n for n in range(len(delays)) if delays[n] == instant and n not in taken]
            assert await queue.dequeue(99) == due
        assert await queue.size() == 0

    in_memory(check)


async def test_what_waits_too_long_expires(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = make_queue()
    await queue.enqueue([Entry("short", expires_in=5.0), Entry("long", expires_in=60.0)])
    await queue.enqueue(["default"], expires_in=5.0)
    clock.advance(4.999999)
    assert await queue.peek(9) == ["short", "long", "default"]
    clock.advance(0.000001)
    assert await queue.dequeue(9) == ["long"]
    dead = await letters(queue)
    assert [(letter.item, letter.reason) for letter in dead] == [
        ("short", DeathReason.EXPIRED),
        ("default", DeathReason.EXPIRED),
    ]
    assert await queue.requeue() == 2
    assert await queue.dequeue(9) == ["short", "default"], "requeued, it does not expire again"


async def test_a_leased_request_does_not_expire_in_the_hand(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    await queue.enqueue(["x"], expires_in=5.0)
    (lease,) = await queue.lease()
    clock.advance(10.0)
    await lease.complete()
    assert (await accounted(queue)).completed == 1


async def test_what_is_behind_many_that_expired_is_there(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    """Clearing those away takes several steps; who does not wait is told of nothing only then."""
    await queue.enqueue(range(2 * STEP + 5), expires_in=1.0)
    await queue.enqueue(["alive", "alive, too"])
    clock.advance(2.0)
    assert await queue.dequeue() == ["alive"]
    await queue.enqueue(range(2 * STEP + 5), priority="high", expires_in=1.0)
    clock.advance(2.0)
    await queue.shutdown()
    assert [lease.item async for lease in queue.leases()] == ["alive, too"]
