"""The queue's verbs over any store that can run a function atomically: memory, SQLite, yours.

Each verb is a function over a :class:`~.step.Step`, run once however often it is asked: the
outcome of a client's last operation is kept beside what it changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from data_fetcher_core.clock import Clock
from data_fetcher_core.core import QueueStats
from data_fetcher_core.errors import StoreError, StoreFull, StoreLost
from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.transactional import TransactionalStore, family_end
from data_fetcher_core.queue import clearing, leasing, settling, tending, waking
from data_fetcher_core.queue.engine import (
    STEP,
    Addition,
    Admitted,
    Beat,
    Cleared,
    Dead,
    Forgotten,
    Grant,
    Granted,
    Insist,
    LaneChange,
    Op,
    Outcome,
    Position,
    Settled,
    Settlement,
    Slice,
    at_once,
    was_forgotten,
)
from data_fetcher_core.queue.lane_state import LaneDefaults
from data_fetcher_core.queue.nonsense import reading
from data_fetcher_core.queue.ordered_keys import OrderedKeys, number_at
from data_fetcher_core.queue.outcomes import (
    pack_admitted,
    pack_settled,
    unpack_admitted,
    unpack_settled,
)
from data_fetcher_core.queue.run_meta import ended_before, lane_defaults, read_meta
from data_fetcher_core.queue.run_steps import RunSteps
from data_fetcher_core.queue.step import NUMBER, Step
from data_fetcher_core.queue.tokens import SIZE, token_base

T = TypeVar("T")
_LOST = "the store no longer holds this run: it was emptied, or replaced by another"


class TransactionalEngine:
    """A :class:`~.engine.QueueEngine` over a :class:`TransactionalStore`."""

    leased_together = STEP

    def __init__(
        self, store: TransactionalStore, namespace: bytes, clock: Clock, *, follows: bool = True
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._keys = OrderedKeys(namespace)
        self._run = RunSteps(self._keys, namespace)
        self._clock = clock
        self._follows = follows
        self._generation = ""
        self._offered: Mapping[str, str] = {}
        self._secret = os.urandom(16)
        self._meta: tuple[bytes, LaneDefaults] = (b"", LaneDefaults())
        self._wakeups = waking.wakeups_of(store, namespace)

    # --- the run -------------------------------------------------------------------------------

    async def open(self, offered: Mapping[str, str], given: Sequence[str]) -> Mapping[str, str]:
        await self._finish_forgetting()
        meta = await self._store.transact(lambda tx: self._run.open(tx, offered, given))
        self._generation, self._offered = meta["generation"], dict(offered)
        options: dict[str, str] = meta["options"]
        return options

    async def forget(self, insist: Insist = at_once) -> None:
        """Whoever opens the run finishes this, if it is interrupted."""
        generation = self._generation
        begin = partial(self._run.begin_to_forget, generation=generation)
        await insist(partial(self._store.transact, begin, urgent=True))
        await self._finish_forgetting(insist)

    async def _finish_forgetting(self, insist: Insist = at_once) -> None:
        while await insist(partial(self._store.transact, self._run.forget_slice, urgent=True)):
            pass

    # --- requests ------------------------------------------------------------------------------

    async def add(self, op: Op, additions: Sequence[Addition]) -> list[list[Admitted]]:
        def run(step: Step) -> tuple[bytes, list[list[Admitted]]]:
            self._count_beat(step, op.client)
            admitted = settling.add(step, additions)
            return pack_admitted(admitted), admitted

        def again(_: Step, raw: bytes) -> list[list[Admitted]]:
            return unpack_admitted(raw, additions)

        return await self._once(op, "add", run, again)

    async def lease(
        self,
        op: Op,
        want: int,
        lanes: Sequence[bytes] | None = None,
        steal: Sequence[bytes] = (),
    ) -> Granted:
        base = token_base(op, self._secret)

        def run(step: Step) -> tuple[bytes, Granted]:
            self._count_beat(step, op.client)
            granted = leasing.lease(
                step, op.client, min(want, STEP), base, lanes=lanes, steal=steal
            )
            return b"".join(grant.token for grant in granted.grants), granted

        def again(step: Step, raw: bytes) -> Granted:
            tokens = [raw[at : at + SIZE] for at in range(0, len(raw), SIZE)]
            return Granted(self._granted_again(step, op.client, tokens), wait=0, now=step.now)

        return await self._once(op, "lease", run, again, urgent=True)

    def _granted_again(self, step: Step, client: bytes, tokens: list[bytes]) -> list[Grant]:
        values = step.tx.get_many([self._keys.lease(client, token) for token in tokens])
        grants = []
        for token, value in zip(tokens, values, strict=True):
            if value is not None:
                lane, raw = leasing.split_lease(value)
                grants.append(leasing.grant_of(step, token, step.lane(lane), raw))
        return grants

    async def settle(self, op: Op, settlements: Sequence[Settlement]) -> list[Settled]:
        try:
            children = any(settlement.addition.requests for settlement in settlements)
            return await self._settle(op, settlements, urgent=not children)
        except StoreFull:
            return await self._settle(op, settlements, urgent=True, refuse_children=True)
        except Forgotten:
            return [Settled(Outcome.LOST)] * len(settlements)

    async def _settle(
        self,
        op: Op,
        settlements: Sequence[Settlement],
        *,
        urgent: bool,
        refuse_children: bool = False,
    ) -> list[Settled]:
        def run(step: Step) -> tuple[bytes, list[Settled]]:
            self._count_beat(step, op.client)
            settled = settling.settle(step, op.client, settlements, refuse_children=refuse_children)
            return pack_settled(settled), settled

        def again(_: Step, raw: bytes) -> list[Settled]:
            return unpack_settled(raw, settlements)

        return await self._once(op, "settle", run, again, urgent=urgent, adopt=False)

    # --- consumers -----------------------------------------------------------------------------

    async def beat(self, client: bytes) -> Beat:
        def run(step: Step) -> Beat:
            self._count_beat(step, client)
            step.flush()
            held = step.family(self._keys.leases_of(client))
            start = len(self._keys.consumers)
            listed = step.family(self._keys.consumers)
            return Beat(len(held), {key[start:]: int.from_bytes(raw) for key, raw in listed})

        return await self._step(run, [self._keys.consumer(client)], urgent=True)

    def _count_beat(self, step: Step, client: bytes) -> None:
        key = self._keys.consumer(client)
        stored = step.known[key]
        # A consumer that was reaped and returns must not come by a number it has had: somebody
        # may still hold a judgement about that one.
        number = step.now if stored is None else int.from_bytes(stored) + 1
        step.put(key, number.to_bytes(NUMBER))

    async def held(self, client: bytes) -> list[bytes]:
        family = self._keys.leases_of(client)
        found = await self._step(lambda step: step.family(family))
        return [key[len(family) :] for key, _ in found]

    async def leave(self, client: bytes) -> Slice:
        return await self._step(lambda step: settling.leave(step, client), urgent=True)

    async def reap(self, client: bytes, beat: int) -> Slice:
        def run(step: Step) -> Slice:
            stored = step.tx.get_many([self._keys.consumer(client)])[0]
            if stored is None or int.from_bytes(stored) != beat:
                return Slice(0, more=False)
            return settling.reap(step, client)

        return await self._step(run, urgent=True)

    # --- lanes, dead letters, cancelling -------------------------------------------------------

    async def change_lanes(self, op: Op, changes: Sequence[LaneChange]) -> None:
        await self._count(op, "change_lanes", lambda step: tending.change_lanes(step, changes))

    async def requeue(self, op: Op, positions: Sequence[Position]) -> int:
        return await self._count(op, "requeue", lambda step: tending.requeue(step, positions))

    async def purge(self, op: Op, older_than: int) -> Slice:
        done = await self._count(op, "purge", lambda step: tending.purge(step, older_than))
        return Slice(done, more=done == STEP)

    async def clear(self, op: Op, place: bytes = b"") -> Cleared:
        def run(step: Step) -> tuple[bytes, Cleared]:
            cleared = clearing.clear(step, self._generation.encode(), place)
            return clearing.pack(cleared), cleared

        return await self._once(op, "clear", run, lambda _, raw: clearing.unpack(raw), urgent=True)

    async def cancel(
        self, op: Op, ids: Sequence[bytes], forget: bool, insist: Insist = at_once
    ) -> int:
        """Mark, walk what waits, and leave only the marks of what is in flight.

        What was dropped is counted in the operation's own outcome, so that asking again goes on.
        """
        mark = partial(tending.mark, names=ids)
        await insist(partial(self._count, op, "cancel", mark))
        tally = self._keys.op(op.client, "cancel")
        for family in (self._keys.ready_lists, self._keys.delayed_requests):
            start: bytes | None = family
            while start is not None:
                walk = tending.walk_wanted(start, family, ids, tally, forget=forget)
                start = await insist(partial(self._step, walk, urgent=True))
        end = tending.end_cancelling(ids, tally, forget=forget)
        return ~await insist(partial(self._step, end, urgent=True))

    async def _count(self, op: Op, verb: str, act: Callable[[Step], int]) -> int:
        def run(step: Step) -> tuple[bytes, int]:
            count = act(step)
            return b"%d" % count, count

        return await self._once(op, verb, run, lambda _, raw: int(raw), urgent=True)

    # --- looking -------------------------------------------------------------------------------

    async def peek(self, want: int) -> list[bytes]:
        return await self._step(lambda step: tending.peek(step, want))

    async def dead(self, after: Position | None, want: int) -> list[Dead]:
        return await self._step(lambda step: tending.dead(step, after, want))

    async def checkpoints(self, names: Sequence[bytes]) -> list[bytes | None]:
        keys = [self._keys.checkpoint(name) for name in names]
        return await self._step(lambda step: step.tx.get_many(keys))

    async def swap(self, name: bytes, expected: bytes | None, value: bytes | None) -> bool:
        return await self._step(lambda step: tending.swap(step, name, expected, value))

    async def results(self, after: int, want: int) -> list[tuple[int, bytes]]:
        family = self._keys.results
        start, end = self._keys.result(after + 1), family_end(family)
        found = await self._step(lambda step: tending.shown(step, start, end, want))
        return [(number_at(key, len(family)), value) for key, value in found]

    async def trim_results(self, upto: int, insist: Insist = at_once) -> None:
        start, end = self._keys.results, self._keys.result(upto + 1)

        def run(step: Step) -> bool:
            found = step.tx.range(start, end, STEP)
            step.tx.delete_many([key for key, _ in found])
            return len(found) == STEP

        while await insist(partial(self._step, run, urgent=True)):
            pass

    async def stats(self) -> QueueStats:
        return await self._step(tending.stats)

    async def recount(self) -> Mapping[str, tuple[int, int]]:
        return await self._step(tending.recount, urgent=True)

    def watch(self) -> int:
        return self._wakeups.mark()

    async def wait_for_work(
        self,
        mark: int,
        timeout: float,
        lanes: Sequence[bytes] | None = None,
    ) -> None:
        await self._wakeups.wait(mark, timeout, self._clock)

    async def wait_for_room(self, mark: int, timeout: float) -> None:
        await self._wakeups.wait(mark, timeout, self._clock)

    # --- one step ------------------------------------------------------------------------------

    async def _once(
        self,
        op: Op,
        verb: str,
        run: Callable[[Step], tuple[bytes, T]],
        again: Callable[[Step, bytes], T],
        *,
        urgent: bool = False,
        adopt: bool = True,
    ) -> T:
        """Run the operation, or answer what it answered the first time."""
        where, number = self._keys.op(op.client, verb), op.number.to_bytes(NUMBER)

        def once(step: Step) -> T:
            stored = step.known[where]
            if stored is not None and stored[:NUMBER] == number:
                return again(step, stored[NUMBER:])
            if stored is not None and stored[:NUMBER] > number:
                raise StoreError("a repeated operation arrived after a later one")
            packed, outcome = run(step)
            step.put(where, number + packed)
            return outcome

        reads = (where, self._keys.consumer(op.client))
        return await self._step(once, reads, urgent=urgent, adopt=adopt)

    async def _step(
        self,
        act: Callable[[Step], T],
        reads: Sequence[bytes] = (),
        *,
        urgent: bool = False,
        adopt: bool = True,
    ) -> T:
        """Run ``act`` in a transaction that has looked at ``reads`` already."""
        changed = False
        first = [self._keys.meta, self._keys.state, *reads]

        def run(tx: Transaction) -> T:
            nonlocal changed
            with reading():
                known = dict(zip(first, tx.get_many(first), strict=True))
                options = self._options(known[self._keys.meta])
                step = Step(tx, self._keys, options, self._now(), known)
                outcome = act(step)
                step.flush()
            changed = step.concerns_waiters
            return outcome

        while True:
            try:
                outcome = await self._store.transact(run, urgent=urgent)
            except Forgotten:
                if not adopt:
                    raise
                if not self._follows:
                    raise was_forgotten(self._namespace.decode()) from None
                await self.open(self._offered, ())
            else:
                break
        if changed:
            self._wakeups.notify()
        return outcome

    def _options(self, raw: bytes | None) -> LaneDefaults:
        """The shared options, after making sure that this is still the run that was opened."""
        if raw is None:
            raise StoreLost(_LOST)
        if raw != self._meta[0]:
            meta = read_meta(raw, self._namespace)
            if meta["generation"] != self._generation:
                raise Forgotten if self._generation in ended_before(meta) else StoreLost(_LOST)
            self._meta = raw, lane_defaults(meta["options"])
        return self._meta[1]

    def _now(self) -> int:
        instant = self._clock.store_now()
        return round((time.time() if instant is None else instant) * 1e6)
