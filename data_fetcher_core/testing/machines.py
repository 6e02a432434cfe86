"""Machines that drive queues and the model in lockstep, and stop at the first difference.

One world is one store with its queues. The lockstep machine has one world; the agreement machine
has several, which must answer alike. Consumers crash, stores are reopened, replies get lost, and
everything is compared after each step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from data_fetcher_core.core import Entry
from data_fetcher_core.queue.identity import id_from_key
from data_fetcher_core.queue.kv_store_queue import KVStoreQueue
from data_fetcher_core.queue.options import QueueOptions
from data_fetcher_core.testing.clock import ManualClock
from data_fetcher_core.testing.faults import Fault
from data_fetcher_core.testing.model import Model
from data_fetcher_core.testing.model_nouns import ModelOptions, Request
from data_fetcher_core.testing.strategies import (
    Draft,
    batches,
    counts,
    delays,
    drafts,
    durations,
    lane_lists,
    lanes,
    priorities,
)
from data_fetcher_core.testing.world import MadeStore, MakeQueue, World

T = TypeVar("T")
MakeStore = Callable[[], MadeStore]
CONSUMERS = ("one", "two")
_MODEL_DURATIONS = {"ageing_step", "lane_interval"}

option_sets = st.fixed_dictionaries(
    {
        "max_deaths": st.sampled_from([1, 2, 5]),
        "ageing_step": st.sampled_from([0.0, 1.0, 60.0]),
        "critical_burst": st.sampled_from([0, 1, 2]),
        "lane_interval": st.sampled_from([0.0, 0.0, 2.0]),
        "lane_burst": st.sampled_from([0, 1]),
        "lane_concurrency": st.sampled_from([0, 0, 1, 3]),
        "capacity": st.sampled_from([0, 0, 6]),
        "max_keyed": st.sampled_from([0, 0, 5]),
    }
)


class LockstepMachine(RuleBasedStateMachine):
    """Do the same to the model and to each world, and compare what they say."""

    makers: Sequence[MakeStore] = ()
    make_queue: MakeQueue = KVStoreQueue

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.model = Model()
        self.worlds: list[World] = []
        self.made = 0
        # Consumer and number of every delivery that is still held.
        self.held: list[tuple[str, int]] = []

    @initialize(chosen=option_sets)
    def begin(self, chosen: Mapping[str, Any]) -> None:
        options = QueueOptions(
            **chosen, max_attempts=3, on_full="raise", lease_ttl=1e6, op_timeout=30.0
        )
        self.model = Model(ModelOptions(**_in_microseconds(chosen)), now=self.clock.microseconds)
        self.worlds = [
            World(make(), options, self.clock, CONSUMERS, type(self).make_queue)
            for make in self.makers
        ]

    def everywhere(self, act: Callable[[World], Coroutine[Any, Any, T]], expected: object) -> None:
        """Do it in every world; each must answer what the model answered."""
        for world in self.worlds:
            answer = self.loop.run_until_complete(act(world))
            assert answer == expected, f"{world}: {answer!r}, and the model says {expected!r}"

    def requests(self, batch: Sequence[Draft]) -> tuple[list[Request], list[Entry]]:
        """The batch as the model and as a queue take it."""
        made = []
        for draft in batch:
            self.made += 1
            derived = draft.key is not None and not draft.own_id
            identity = (
                id_from_key(str(draft.key).encode()).decode() if derived else self.name(draft)
            )
            made.append((draft, identity, derived, self.made))
        return (
            [
                Request(
                    identity,
                    n,
                    draft.lane,
                    draft.key,
                    draft.priority,
                    round(draft.delay * 1e6),
                    round((draft.expires_in or 0) * 1e6),
                )
                for draft, identity, _, n in made
            ],
            [
                Entry(
                    n,
                    id=None if derived else identity,
                    lane=draft.lane,
                    key=draft.key,
                    priority=draft.priority,
                    delay=draft.delay,
                    expires_in=draft.expires_in,
                )
                for draft, identity, derived, n in made
            ],
        )

    def name(self, draft: Draft) -> str:
        """Without a key an id may come again, best one that is cancelled: it is another request."""
        held = [request for mine in self.model.leased.values() for request in mine.values()]
        marked = [request.id for request in held if request.delivery in self.model.cancelled]
        again = draft.key is None and draft.own_id
        return [*marked, f"r{(self.made + 1) // 2}"][0] if again else f"r{self.made}"

    # --- taking in and handing out -------------------------------------------------------------

    @rule(batch=batches, who=st.sampled_from(CONSUMERS), saves=st.booleans())
    def enqueue(self, batch: Sequence[Draft], who: str, saves: bool) -> None:
        requests, entries = self.requests(batch)
        checkpoint = {"cursor": self.made} if saves else None
        outcomes = self.model.add(requests, checkpoint)
        expected = (
            sum(kind == "new" for kind, _ in outcomes),
            [identity for kind, identity in outcomes if kind != "full"],
        )
        self.everywhere(
            lambda world: world.enqueue(who, entries, checkpoint), _cut(expected, outcomes)
        )

    @rule(
        who=st.sampled_from(CONSUMERS),
        want=counts,
        assigned=st.one_of(st.none(), lane_lists),
        steal=lane_lists,
    )
    def lease(self, who: str, want: int, assigned: list[str] | None, steal: list[str]) -> None:
        extra = [] if assigned is None else [lane for lane in steal if lane not in assigned]
        granted = self.model.lease(who, want, assigned, extra)
        numbers = [request.delivery for request in granted]
        self.held += [(who, number) for number in numbers]
        shown = [_shown(request) for request in granted]
        self.everywhere(lambda world: world.lease(who, want, assigned, extra, numbers), shown)

    # --- settling ------------------------------------------------------------------------------

    def some_lease(self, data: st.DataObject) -> tuple[str, int]:
        held = data.draw(st.sampled_from(self.held))
        self.held.remove(held)
        return held

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(),
        children=st.lists(drafts, max_size=3),
        result=st.none() | st.integers(0, 99),
    )
    def complete(self, data: st.DataObject, children: list[Draft], result: int | None) -> None:
        who, delivery = self.some_lease(data)
        requests, entries = self.requests(children)
        checkpoint = {"cursor": self.made} if children else None
        done = self.model.complete(who, delivery, requests, checkpoint, result)
        self.everywhere(
            lambda world: world.complete(who, delivery, entries, checkpoint, result), done
        )

    @precondition(lambda self: self.held)
    @rule(data=st.data(), delay=delays, priority=st.none() | priorities)
    def release(self, data: st.DataObject, delay: float, priority: int | None) -> None:
        who, delivery = self.some_lease(data)
        held = self.model.leased[who][delivery]
        if held.attempts + 1 >= 3:
            done = self.model.give_up(who, delivery, "boom")
        else:
            done = self.model.release(who, delivery, round(delay * 1e6), "boom", priority)
        self.everywhere(lambda world: world.release(who, delivery, delay, priority), done)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def bury(self, data: st.DataObject) -> None:
        who, delivery = self.some_lease(data)
        done = self.model.give_up(who, delivery, "gone")
        self.everywhere(lambda world: world.bury(who, delivery), done)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        who, delivery = self.some_lease(data)
        done = self.model.give_back(who, delivery)
        self.everywhere(lambda world: world.give_back(who, delivery), done)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), children=st.lists(drafts, max_size=3))
    def progress(self, data: st.DataObject, children: list[Draft]) -> None:
        who, delivery = self.some_lease(data)
        requests, entries = self.requests(children)
        checkpoint = {"cursor": self.made}
        done = self.model.progress(who, delivery, requests, checkpoint)
        self.everywhere(lambda world: world.progress(who, delivery, entries, checkpoint), done)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        who, delivery = self.some_lease(data)
        checkpoint = {"dropped": self.made}
        done = self.model.drop(who, delivery, checkpoint)
        self.everywhere(lambda world: world.drop(who, delivery, checkpoint), done)

    @rule()
    def settle_again(self) -> None:
        """A settlement with a token that is spent changes nothing."""
        self.everywhere(lambda world: world.settle_spent_tokens(), True)

    # --- what goes wrong -----------------------------------------------------------------------

    @rule(who=st.sampled_from(CONSUMERS))
    def crash(self, who: str) -> None:
        """The consumer is gone without a word; the other one takes up what it held."""
        self.model.reap(who)
        self.held = [lease for lease in self.held if lease[0] != who]
        self.everywhere(lambda world: world.crash(who), None)

    @rule(who=st.sampled_from(CONSUMERS))
    def close(self, who: str) -> None:
        self.model.leave(who)
        self.held = [lease for lease in self.held if lease[0] != who]
        self.everywhere(lambda world: world.close(who), None)

    @rule()
    def restart(self) -> None:
        """Every process dies, and the store is opened anew."""
        for who in CONSUMERS:
            self.model.reap(who)
        self.held = []
        self.everywhere(lambda world: world.restart(), None)

    @rule(fault=st.sampled_from([Fault.BEFORE, Fault.AFTER]), call=st.integers(1, 2))
    def lose_a_message(self, fault: Fault, call: int) -> None:
        for world in self.worlds:
            world.plan(fault, call)

    @rule(duration=durations)
    def advance(self, duration: float) -> None:
        self.clock.advance(duration)
        self.model.now = self.clock.microseconds

    # --- lanes, dead letters, cancelling -------------------------------------------------------

    @rule(lane=lanes, duration=durations)
    def shut(self, lane: str, duration: float) -> None:
        self.model.shut(lane, round(duration * 1e6))
        self.everywhere(lambda world: world.queue().shut(lane, duration), None)

    @rule(lane=lanes)
    def reopen(self, lane: str) -> None:
        self.model.reopen(lane)
        self.everywhere(lambda world: world.queue().reopen(lane), None)

    @rule(
        lane=lanes,
        interval=st.sampled_from([None, 0.0, 1.0]),
        burst=st.sampled_from([None, 0, 2]),
        limit=st.sampled_from([None, 0, 1, 2]),
    )
    def pace(self, lane: str, interval: float | None, burst: int | None, limit: int | None) -> None:
        spacing = -1 if interval is None else round(interval * 1e6)
        early, most = -1 if burst is None else burst, -1 if limit is None else limit
        self.model.set_lane(lane, spacing, early, most)
        self.everywhere(
            lambda world: world.queue().pace(lane, interval=interval, burst=burst, limit=limit),
            None,
        )

    @precondition(lambda self: self.model.dead)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        ids = sorted({letter[2].id for letter in self.model.dead})
        chosen = data.draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))
        count = self.model.requeue(chosen)
        self.everywhere(lambda world: world.queue().requeue(chosen), count)

    @rule(older_than=delays)
    def purge(self, older_than: float) -> None:
        count = self.model.purge(round(older_than * 1e6))
        self.everywhere(lambda world: world.queue().purge_dead(older_than), count)

    @precondition(lambda self: self.made)
    @rule(data=st.data(), forget=st.booleans())
    def cancel(self, data: st.DataObject, forget: bool) -> None:
        known = [f"r{n}" for n in range(1, self.made + 1)][-10:]
        known += sorted(set(self.model.seen.values()) - set(known))
        ids = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        if forget:
            self.model.forget_keys_of(ids)
        count = self.model.cancel(ids)
        self.everywhere(lambda world: world.queue().cancel(ids, forget=forget), count)

    @rule()
    def clear(self) -> None:
        count = self.model.clear()
        self.everywhere(lambda world: world.queue().clear(), count)

    # --- comparing -----------------------------------------------------------------------------

    @rule(want=st.integers(0, 12))
    def peek(self, want: int) -> None:
        expected = [request.item for request in self.model.peek(want)]
        self.everywhere(lambda world: world.queue().peek(want), expected)

    @invariant()
    def counts_agree(self) -> None:
        stats = self.model.stats()
        assert stats.unaccounted == 0, stats
        self.everywhere(lambda world: world.stats(), stats)

    @rule()
    def everything_agrees(self) -> None:
        """Dead letters with their history, checkpoints, results; and no derived count drifted."""
        dead = [
            (r.id, reason, r.attempts, r.deaths, tuple(r.failures), at / 1e6)
            for at, reason, r in self.model.dead
        ]
        self.everywhere(lambda world: world.dead(), dead)
        self.everywhere(
            lambda world: world.checkpoint("cursor"), self.model.checkpoints.get("cursor")
        )
        self.everywhere(lambda world: world.results(), self.model.results)
        self.everywhere(lambda world: world.queue().recount(), {})

    def teardown(self) -> None:
        for world in self.worlds:
            self.loop.run_until_complete(world.end())
        self.loop.close()


def lockstep_machine(
    *make_stores: MakeStore, make_queue: MakeQueue = KVStoreQueue
) -> type[LockstepMachine]:
    """A machine over one store, or over several that must agree.

    ``make_stores`` make a new, empty store each, or (store, reopen) where ``reopen`` opens the
    same data again after the process is gone.
    """
    members: dict[str, Any] = {"makers": make_stores, "make_queue": staticmethod(make_queue)}
    return type("LockstepMachine", (LockstepMachine,), members)


def _in_microseconds(chosen: Mapping[str, Any]) -> dict[str, int]:
    known = {field.name for field in fields(ModelOptions)}
    return {
        name: round(value * 1e6) if name in _MODEL_DURATIONS else value
        for name, value in chosen.items()
        if name in known
    }


def _shown(request: Request) -> tuple[Any, ...]:
    return (
        request.id,
        request.item,
        request.lane,
        request.priority,
        request.attempts,
        request.deaths,
    )


def _cut(
    expected: tuple[int, list[str]], outcomes: Sequence[tuple[str, str]]
) -> tuple[int, list[str]] | tuple[str, int]:
    """Where the capacity was met, a queue says how many of the leading ones it took."""
    kinds = [kind for kind, _ in outcomes]
    if "full" not in kinds:
        return expected
    return "full", kinds[: kinds.index("full")].count("new")
