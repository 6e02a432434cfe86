"""What one step over an ordered store answers: to who adds, leases, settles and leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import leasing, settling, tending
from data_fetcher_core.queue.engine import (
    STEP,
    Addition,
    Admission,
    Admitted,
    Granted,
    Move,
    NewRequest,
    Op,
    Outcome,
    Reason,
    Settled,
    Settlement,
    Slice,
)
from data_fetcher_core.queue.lane_state import LaneDefaults, QueueState
from data_fetcher_core.queue.ordered_keys import OrderedKeys
from data_fetcher_core.queue.records import Record, decode
from data_fetcher_core.queue.step import UNREADABLE, Step, read_dead
from data_fetcher_core.queue.tokens import token_base
from tests.scripted import new

T = TypeVar("T")
ME = b"me"


class Steps:
    """One run in memory, a step at a time, at an instant that stands still."""

    def __init__(self, **options: int) -> None:
        self.store = MemoryStore()
        self.keys = OrderedKeys(b"run")
        self.now = 1_000
        self._options = LaneDefaults(**options)
        self._leases = 0

    async def run(self, do: Callable[[Step], T]) -> T:
        def run(tx: Transaction) -> T:
            (state,) = tx.get_many([self.keys.state])
            step = Step(tx, self.keys, self._options, self.now, {self.keys.state: state})
            answer = do(step)
            step.flush()
            return answer

        return await self.store.transact(run)

    async def add(self, *requests: NewRequest, **how: Any) -> list[tuple[str, str]]:
        addition = Addition(requests, **how)
        (told,) = await self.run(lambda step: settling.add(step, [addition]))
        return [(one.admission.name, one.id.decode()) for one in told]

    async def lease(self, want: int = 1) -> Granted:
        self._leases += 1
        base = token_base(Op(ME, self._leases), b"secret")
        return await self.run(
            lambda step: leasing.lease(step, ME, want, base, lanes=None, steal=())
        )

    async def settle(
        self, *settlements: Settlement, refuse_children: bool = False
    ) -> list[Settled]:
        return await self.run(
            lambda step: settling.settle(step, ME, settlements, refuse_children=refuse_children)
        )

    async def cancel(self, *ids: bytes) -> None:
        """What is in flight is marked by its token, and by nothing else."""
        tally = self.keys.op(ME, "cancel")
        await self.run(lambda step: step.put(tally, bytes(8) + b"0"))
        await self.run(tending.end_cancelling(ids, tally, forget=False))

    async def damage(self, token: bytes) -> None:
        """The record of a lease, in the store."""
        value = leasing.lease_value(b"", b"")
        await self.run(lambda step: step.put(self.keys.lease(ME, token), value))

    async def state(self) -> QueueState:
        return await self.run(lambda step: step.state)

    async def dead(self) -> list[tuple[Reason, bytes, bytes]]:
        found = await self.run(lambda step: step.family(self.keys.dead_letters))
        letters = [read_dead(self.keys, key, value) for key, value in found]
        return [(letter.reason, letter.detail, letter.record) for letter in letters]


def taken(granted: Granted) -> list[str]:
    return [decode(grant.record).id.decode() for grant in granted.grants]


def suspect(identity: bytes, lane: bytes = b"") -> NewRequest:
    record = Record(id=identity, lane=lane, key=b"", priority=3, body=b"", deaths=1)
    return NewRequest(identity, record.encode())


# --- adding ------------------------------------------------------------------------------------


async def test_who_adds_is_told_of_each() -> None:
    run = Steps(capacity=3, max_keyed=1)
    first = new("a", key="same", told_id=b"a")
    assert await run.add(first, new("b"), new("c", key="other")) == [
        ("NEW", "a"),
        ("NEW", "b"),
        ("OVER", "c"),
    ]
    again = new("d", key="same")
    assert await run.add(again, again, new("e"), new("f")) == [
        ("DUPLICATE", "a"),
        ("DUPLICATE", "a"),
        ("NEW", "e"),
        ("FULL", "f"),
    ]
    assert await run.add(new("g"), new("h"), whole=True) == [("FULL", "g"), ("FULL", "h")]
    assert (await run.state()).duplicates == 2


async def test_what_follows_one_without_room_is_not_looked_at() -> None:
    """It is brought again with it, and counted only then."""
    run = Steps(capacity=1, max_keyed=1)
    known = new("a", key="same", told_id=b"a")
    await run.add(known)
    assert await run.add(known, new("full"), known, new("over", key="other"), new("b")) == [
        ("DUPLICATE", "a"),
        ("FULL", "full"),
        ("FULL", "a"),
        ("FULL", "over"),
        ("FULL", "b"),
    ]
    assert (await run.state()).duplicates == 1


async def test_what_belongs_to_work_in_flight_is_let_in_however_full_it_is() -> None:
    run = Steps(capacity=1)
    await run.add(new("a"))
    assert await run.add(new("b"), bound=False) == [("NEW", "b")]
    assert await run.add(new("c")) == [("FULL", "c")]


async def test_who_waits_looks_again_when_something_is_to_come() -> None:
    run = Steps()

    def bring(step: Step) -> bool:
        settling.add(step, [Addition([new("later", delay=5)])])
        return step.concerns_waiters

    assert await run.run(bring)


async def test_what_is_to_enter_as_a_whole_may_take_the_last_place() -> None:
    run = Steps(capacity=2)
    assert await run.add(new("a"), new("b"), whole=True) == [("NEW", "a"), ("NEW", "b")]


async def test_who_waits_for_room_looks_again_when_something_was_taken() -> None:
    run = Steps(capacity=1)
    await run.add(new("a"))

    def take(step: Step) -> bool:
        leasing.lease(step, ME, 1, token_base(Op(ME, 1), b"secret"), lanes=None, steal=())
        return step.concerns_waiters

    assert await run.run(take)


# --- leasing -----------------------------------------------------------------------------------


async def test_who_got_nothing_is_told_what_comes_first() -> None:
    """A gate that opens, or a request that is due."""
    run = Steps(lane_interval=10)
    await run.add(new("a"), new("b"))
    assert taken(await run.lease()) == ["a"]
    assert (await run.lease()).wait == 10
    await run.add(new("late", delay=100))
    assert (await run.lease()).wait == 10
    await run.add(new("soon", delay=4))
    assert (await run.lease()).wait == 4


async def test_a_lane_that_gave_all_it_had_is_out_of_the_ring() -> None:
    run = Steps()
    await run.add(new("a"), new("b"))
    assert taken(await run.lease(5)) == ["a", "b"]
    assert (await run.state()).lanes == 0


async def test_a_lane_whose_limit_was_lowered_is_passed_over() -> None:
    run = Steps(lane_concurrency=2)
    await run.add(*(new(f"{lane}{n}", lane=lane) for lane in "ab" for n in range(2)))
    assert taken(await run.lease(2)) == ["a0", "b0"]
    await run.run(lambda step: setattr(step.lane(b"a"), "limit", 1))
    assert taken(await run.lease(5)) == ["b1"]


async def test_what_was_cleared_and_lies_there_still_is_gone() -> None:
    run = Steps()
    await run.add(new("ready", key="k"), new("delayed", delay=5), new("other", lane="other"))
    await run.run(lambda step: setattr(step.state, "cleared_upto", step.state.number))
    added = await run.add(new("new", key="k"), new("later", delay=5))
    assert added == [("NEW", "new"), ("NEW", "later")]
    run.now += 10
    assert taken(await run.lease(9)) == ["new", "later"]
    state = await run.state()
    assert (state.cleared, state.ready, state.delayed, state.leased) == (3, 0, 0, 2)


@pytest.mark.parametrize(("count", "has_made_room"), [(0, False), (2, True)])
async def test_what_is_cleared_makes_room(count: int, has_made_room: bool) -> None:
    def clear(step: Step) -> bool:
        step.count_cleared(count)
        return step.made_room

    assert await Steps().run(clear) is has_made_room


async def test_who_leases_is_told_of_what_must_be_held_alone() -> None:
    run = Steps(max_deaths=2)
    await run.add(new("a"))
    assert (await run.lease()).suspect is False
    await run.add(suspect(b"s", b"its lane"), new("behind it", lane="its lane"), new("b"))
    granted = await run.lease(9)
    assert (taken(granted), granted.suspect) == (["b"], True)


@pytest.mark.parametrize(
    ("requests", "lease", "drained"),
    [
        ([], 0, True),
        ([new("ready")], 0, False),
        ([new("held")], 1, False),
        ([new("held"), new("delayed", delay=5)], 1, False),
    ],
)
async def test_who_leases_is_told_whether_all_is_done(
    requests: Sequence[NewRequest], lease: int, drained: bool
) -> None:
    run = Steps()
    await run.add(*requests)
    await run.lease(lease)
    assert (await run.lease(0)).drained is drained


@pytest.mark.parametrize(("bytes_over", "granted"), [(-1, 2), (0, 2), (1, 3)])
async def test_a_lease_ends_with_the_request_that_makes_it_as_heavy_as_a_step(
    bytes_over: int, granted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left over is there at once for who asks again."""
    run, waiting = Steps(), [new(letter) for letter in "abcd"]
    await run.add(*waiting)
    monkeypatch.setattr(leasing, "STEP_BYTES", 2 * len(waiting[0].record) + bytes_over)
    told = await run.lease(9)
    assert (taken(told), told.wait) == (list("abcd")[:granted], 0)


async def test_what_is_over_is_cleared_away_a_bounded_part_at_a_time() -> None:
    run = Steps()
    await run.add(*(new(str(n), expires_in=1) for n in range(STEP + 5)))
    run.now += 10
    granted = await run.lease()
    assert (granted.grants, granted.wait) == ([], 0)
    assert (await run.state()).ready == 5
    assert (await run.lease()).wait is None
    assert (await run.state()).ready == 0


async def test_who_was_served_last_is_behind_the_others() -> None:
    run = Steps()
    await run.add(*(new(f"{lane}{n}", lane=lane) for n in range(3) for lane in "ab"))
    assert taken(await run.lease(3)) == ["a0", "b0", "a1"]
    assert taken(await run.lease(3)) == ["b1", "a2", "b2"]


async def test_a_damaged_record_comes_first_and_is_buried() -> None:
    run = Steps()
    await run.add(new("low", priority=2), new("high", priority=5))
    (key, _), *_ = await run.run(lambda step: step.family(run.keys.ready_lists))
    await run.run(lambda step: step.put(key, b"damaged"))
    assert taken(await run.lease(2)) == ["high"]
    assert await run.dead() == [(Reason.CORRUPT, UNREADABLE, b"damaged")]


@pytest.mark.parametrize("want", [1, 2, 3, 9])
async def test_who_peeks_sees_as_many_as_wanted(want: int) -> None:
    run = Steps()
    await run.add(*(new(f"{lane}{n}", lane=lane) for lane in "ab" for n in range(2)))
    seen = await run.run(lambda step: tending.peek(step, want))
    assert [decode(raw).id for raw in seen] == [b"a0", b"b0", b"a1", b"b1"][:want]


# --- settling ----------------------------------------------------------------------------------


async def test_who_settles_is_told_of_each() -> None:
    run = Steps()
    await run.add(*(new(name) for name in "abcd"))
    a, b, c, d = [grant.token for grant in (await run.lease(4)).grants]
    await run.run(lambda step: tending.mark(step, [b"b"]))
    child = [Admitted(Admission.NEW, b"child")]
    brings = Addition([new("child")])
    assert await run.settle(
        Settlement(a, Move.COMPLETE, addition=brings),
        Settlement(b, Move.RELEASE, addition=brings),
        Settlement(c, Move.GIVE_BACK, addition=brings),
        Settlement(c, Move.COMPLETE),
    ) == [
        Settled(Outcome.DONE, child),
        Settled(Outcome.CANCELLED, child),
        Settled(Outcome.DONE, child),
        Settled(Outcome.LOST),
    ]
    full = Settlement(d, Move.COMPLETE, addition=brings)
    assert await run.settle(full, refuse_children=True) == [Settled(Outcome.FULL)]
    assert await run.settle(full) == [Settled(Outcome.DONE, child)]


async def test_every_release_is_counted() -> None:
    run = Steps()
    await run.add(new("a"))
    for _ in range(3):
        (grant,) = (await run.lease()).grants
        await run.settle(Settlement(grant.token, Move.RELEASE))
    assert (await run.state()).retried == 3


async def test_every_burial_is_counted() -> None:
    run = Steps()
    await run.add(*(new(name) for name in "abc"))
    for grant in (await run.lease(3)).grants:
        await run.settle(Settlement(grant.token, Move.BURY))
    state = await run.state()
    assert (state.buried, state.dead) == (3, 3)


@pytest.mark.parametrize(
    ("how", "letters"),
    [
        ({"move": Move.BURY, "detail": b"why"}, [(Reason.FAILED, b"why", b"")]),
        ({"move": Move.BURY, "head": b"head"}, [(Reason.CORRUPT, UNREADABLE, b"")]),
        ({"move": Move.RELEASE}, [(Reason.CORRUPT, UNREADABLE, b"")]),
        ({"move": Move.GIVE_BACK}, [(Reason.CORRUPT, UNREADABLE, b"")]),
        ({"move": Move.COMPLETE}, []),
    ],
)
async def test_a_lease_whose_record_was_damaged_meanwhile(
    how: dict[str, Any], letters: list[tuple[Reason, bytes, bytes]]
) -> None:
    run = Steps()
    await run.add(new("a"))
    (grant,) = (await run.lease()).grants
    await run.run(lambda step: tending.mark(step, [b"another"]))
    await run.damage(grant.token)
    assert await run.settle(Settlement(grant.token, **how)) == [Settled(Outcome.DONE, [])]
    assert await run.dead() == letters


# --- leaving -----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [settling.leave, settling.reap])
async def test_who_leaves_gives_back_a_bounded_part_at_a_time(
    end: Callable[[Step, bytes], Slice],
) -> None:
    run = Steps()
    await run.add(*(new(str(n)) for n in range(STEP + 1)))
    await run.lease(STEP)
    await run.lease(1)
    await run.run(lambda step: step.put(run.keys.consumer(ME), b"beat"))
    assert await run.run(lambda step: end(step, ME)) == Slice(STEP, more=True)
    assert await run.run(lambda step: step.family(run.keys.consumers)) != []
    assert await run.run(lambda step: end(step, ME)) == Slice(1, more=False)
    assert await run.run(lambda step: step.family(run.keys.consumers)) == []


@pytest.mark.parametrize("end", [settling.leave, settling.reap])
async def test_what_was_cancelled_in_flight_goes_with_who_held_it(
    end: Callable[[Step, bytes], Slice],
) -> None:
    run = Steps()
    await run.add(*(new(name) for name in "abcd"))
    held = (await run.lease(4)).grants
    await run.cancel(b"b", b"d")
    await run.settle(Settlement(held[3].token, Move.COMPLETE))
    assert (await run.state()).marks == 1
    await run.run(lambda step: end(step, ME))
    state = await run.state()
    assert (state.cancelled, state.completed, state.ready, state.marks) == (1, 1, 2, 0)
    assert taken(await run.lease(4)) == ["a", "c"]


@pytest.mark.parametrize("end", [settling.leave, settling.reap])
async def test_nothing_stays_of_who_has_left(end: Callable[[Step, bytes], Slice]) -> None:
    run = Steps()
    await run.run(lambda step: step.put(run.keys.consumer(ME), b"beat"))
    await run.run(lambda step: step.put(run.keys.op(ME, "add"), b"outcome"))
    before = len(await run.run(lambda step: step.family(run.keys.all)))
    await run.run(lambda step: end(step, ME))
    assert len(await run.run(lambda step: step.family(run.keys.all))) == before - 2
