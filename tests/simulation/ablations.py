"""Deliberately broken variants: each takes away one thing that a promise rests on.

They patch the real code while a world runs. A simulation that does not find one of these has not
looked. ``breaks`` is the number of a promise in docs/guarantees.md, and ``shown_by`` are the rules
that a world breaks by it; ``hint`` is a seed that shows it, to look at first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from data_fetcher_core.fetcher import feeding
from data_fetcher_core.fetcher.exporting import Exporter
from data_fetcher_core.fetcher.turns import checkpoint_name
from data_fetcher_core.fetcher.working import Worker
from data_fetcher_core.kv_store import memory
from data_fetcher_core.queue import client, leasing, settling, step, sweeping
from data_fetcher_core.queue import transactional_engine as engines
from data_fetcher_core.queue.batching import Batcher
from data_fetcher_core.queue.consumers import Watchlist
from data_fetcher_core.queue.engine import (
    Addition,
    Admission,
    Admitted,
    Granted,
    Move,
    Op,
    Outcome,
    Settled,
    Settlement,
    Slice,
)
from data_fetcher_core.queue.settlements import Settler
from tests.histories import Violation
from tests.simulation.rules import CRASHED, STUCK

Engine = engines.TransactionalEngine
Patch = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True)
class Ablation:
    name: str
    breaks: str
    shown_by: frozenset[str]
    patches: Sequence[Patch]
    hint: int = 0
    world: str = "queue"

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, value in self.patches:
                stack.enter_context(patch.object(owner, name, value))
            yield

    def is_shown_by(self, violations: Sequence[Violation]) -> bool:
        """A variant that crashes shows nothing: whatever crashes is found, looked for or not."""
        rules = {violation.rule for violation in violations}
        return CRASHED not in rules and bool(rules & self.shown_by)


# --- settling ----------------------------------------------------------------------------------

_settle_step = settling.settle
_settle = Engine.settle
_add = Engine.add


def _settle_unfenced(st: Any, who: bytes, settlements: Sequence[Settlement], **rest: Any) -> Any:
    """Whoever comes with any token brings its children in, and is told that it is done."""
    outcomes = _settle_step(st, who, settlements, **rest)
    seen = settling._Seen(st, [s.addition for s in settlements])
    for at, (settlement, settled) in enumerate(zip(settlements, outcomes, strict=True)):
        if settled.outcome is Outcome.LOST:
            admitted = settling._admit(st, settlement.addition, seen, 1 << 62)
            outcomes[at] = Settled(Outcome.DONE, admitted)
    return outcomes


async def _children_after(self: Any, op: Op, settlements: Sequence[Settlement]) -> list[Settled]:
    """First the settlement, then what it produced."""
    bare = [s._replace(addition=Addition()) for s in settlements]
    settled = await _settle(self, op, bare)
    for one, settlement in zip(settled, settlements, strict=True):
        if settlement.addition.requests and one.outcome is Outcome.DONE:
            await _add(self, Op(op.client + b"!", op.number), [settlement.addition])
    return settled


async def _children_before(self: Any, op: Op, settlements: Sequence[Settlement]) -> list[Settled]:
    for settlement in settlements:
        if settlement.addition.requests:
            await _add(self, Op(op.client + b"!", op.number), [settlement.addition])
    return await _settle(self, op, [s._replace(addition=Addition()) for s in settlements])


async def _acknowledge_first(self: Any, op: Op, settlements: Sequence[Settlement]) -> list[Settled]:
    """Says that it is done, then does it."""
    later = asyncio.get_running_loop().create_task(_quietly(_settle(self, op, settlements)))
    self.__dict__.setdefault("later", []).append(later)
    return [Settled(Outcome.DONE)] * len(settlements)


async def _quietly(work: Any) -> None:
    with suppress(Exception):
        await work


async def _lose_on_retry(self: Any, op: Op, settlements: Sequence[Settlement]) -> list[Settled]:
    gone = [s._replace(move=Move.DROP) if s.move is Move.RELEASE else s for s in settlements]
    return await _settle(self, op, gone)


async def _give_back_charged(self: Any, lease: Any) -> None:
    head = lease.record._replace(attempts=lease.attempts + 1).head()
    await self._settle(lease, Settlement(lease.token, Move.GIVE_BACK, head))


def _take_back_uncounted(st: Any, key: bytes, lane: bytes) -> None:
    st.delete(key)
    st.state.leased -= 1
    st.touch(lane)


# --- the step and its operation id -------------------------------------------------------------


async def _run_again(self: Any, op: Op, verb: str, run: Any, again: Any, **rest: Any) -> Any:
    return await self._step(lambda st: run(st)[1], [self._keys.consumer(op.client)], **rest)


async def _run_late(self: Any, op: Op, verb: str, run: Any, again: Any, **rest: Any) -> Any:
    """Only the very last operation is known again: one that comes late is run."""
    where, number = self._keys.op(op.client, verb), op.number.to_bytes(step.NUMBER)

    def once(st: Any) -> Any:
        stored = st.known[where]
        if stored is not None and stored[: step.NUMBER] == number:
            return again(st, stored[step.NUMBER :])
        packed, outcome = run(st)
        st.put(where, number + packed)
        return outcome

    return await self._step(once, (where, self._keys.consumer(op.client)), **rest)


async def _checkpoint_first(self: Any, op: Op, additions: Sequence[Addition]) -> Any:
    for addition in additions:
        if addition.checkpoint:
            await self._step(lambda st, one=addition: _save(st, one.checkpoint))
    return await _add(self, op, [a._replace(checkpoint={}) for a in additions])


def _save(st: Any, checkpoint: Mapping[bytes, bytes]) -> None:
    for name, value in checkpoint.items():
        st.put(st.keys.checkpoint(name), value)


async def _keys_first(self: Any, op: Op, additions: Sequence[Addition]) -> Any:
    """Remember the keys in one step, take the requests in in another."""
    known: set[bytes] = await self._step(lambda st: _remember(st, additions))
    fresh = [
        a._replace(requests=[r._replace(seen=b"") for r in a.requests if r.seen not in known])
        for a in additions
    ]
    admitted = iter(await _add(self, op, fresh))
    return [_with_duplicates(a, next(admitted), known) for a in additions]


def _remember(st: Any, additions: Sequence[Addition]) -> set[bytes]:
    seen = {r.seen: r.told_id for a in additions for r in a.requests if r.seen}
    found = st.tx.get_many([st.seen_keys + key for key in seen])
    known = {key for key, value in zip(seen, found, strict=True) if value is not None}
    for key, told in seen.items():
        if key not in known:
            st.put(st.seen_keys + key, told)
    return known


def _with_duplicates(
    addition: Addition, admitted: Sequence[Admitted], known: set[bytes]
) -> list[Admitted]:
    new = iter(admitted)
    return [
        Admitted(Admission.DUPLICATE, r.id) if r.seen in known else next(new)
        for r in addition.requests
    ]


def _wait_half(self: Any, raw: bytes, delay: int) -> None:
    _make_wait(self, raw, delay // 2)


_make_wait = step.Step.make_wait


# --- who is dead -------------------------------------------------------------------------------


def _silent_anyhow(self: Any, beats: Mapping[bytes, int], now: float, ttl: float) -> list[bytes]:
    """Goes by when a consumer was first seen."""
    self._since = {name: self._since.get(name, (beat, now)) for name, beat in beats.items()}
    return [name for name, (_, since) in self._since.items() if now - since >= ttl]


async def _reap_anyhow(self: Any, who: bytes, beat: int) -> Slice:
    """Does not look whether the beat is still the one that was judged."""
    taken: Slice = await self._step(lambda st: settling.reap(st, who), urgent=True)
    return taken


async def _nobody(self: Any, *_: Any) -> None:
    """Not done at all."""


def _heard_by_question(self: Any, asked_at: float) -> None:
    if not self.is_doubtful(asked_at):
        self.heard_at = max(self.heard_at, asked_at)


def _undoubted(self: Any, now: float) -> bool:
    return False


def _deathless(raw: bytes) -> tuple[bytes, int]:
    return raw, 0


# --- leases ------------------------------------------------------------------------------------

_granted = leasing._Taking.granted


def _drained_early(self: Any, more: bool) -> Granted:
    """What is in flight does not count."""
    state = self.step.state
    return _granted(self, more)._replace(drained=state.ready + state.delayed == 0)


def _one_base(op: Op, secret: bytes) -> bytes:
    return b"\x00" * 12


def _shut_gates(self: Any) -> int:
    return 0


async def _send_mixed_up(self: Any, batch: list[Any]) -> None:
    """Answers go to the wrong callers of the batch."""
    try:
        outcomes = list(await self._send([item for item, _ in batch]))
    except Exception as error:  # noqa: BLE001 - handed to every caller of the batch
        for _, future in batch:
            if not future.done():
                future.set_exception(error)
                future.exception()
        return
    for (_, future), outcome in zip(batch, reversed(outcomes), strict=True):
        if not future.done():
            future.set_result(outcome)


def _no_undo(self: Any) -> None:
    """What a step did before it failed remains."""


# --- the fetcher -------------------------------------------------------------------------------


async def _links_after(self: Any, lease: Any, line: Any, children: list[Any]) -> None:
    await lease.complete(result=line)
    await self._failures._queue.enqueue(children)


async def _turn_after_its_checkpoint(
    self: Any, lease: Any, name: str, entries: list[Any], standing: Any
) -> int:
    at = checkpoint_name(name)
    before = await self._queue.checkpoint(at)
    await self._queue.swap_checkpoint(at, before, standing.to_checkpoint())
    if standing.exhausted:
        await lease.drop()
        return 0
    return int(await lease.progress(entries))


async def _trim_first(self: Any) -> bool:
    """Drops results from the store, then writes them to the index."""
    entries = await self._queue.results(self._written, 1_000)
    if entries:
        self._written = entries[-1][0]
        await self._queue.trim_results(self._written)
        await self._storage.append_index(entries)
    return False


def _named(
    name: str, breaks: str, shown_by: str, *patches: Patch, world: str = "queue"
) -> Ablation:
    rules = frozenset(shown_by.split(", "))
    return Ablation(name, breaks, rules, patches, _HINTS.get(name, 0), world)


# Where each was found first, the last time that all were looked for.
_HINTS = {
    "unfenced settle": 1,
    "children after the settlement": 13,
    "children before the settlement": 3,
    "no rollback": 4,
    "no operation ids": 6,
    "late operations are run": 8,
    "checkpoint before its requests": 57,
    "nobody is reaped": 1,
    "a zombie hands out": 122,
    "an old question ends a silence": 417,
    "deaths are not counted": 2,
    "what nobody holds is kept": 1,
    "drained while in flight": 44,
    "answers are mixed up": 19,
    "links after their page": 1,
    "a turn after its checkpoint": 377,
    "trimmed before written": 61,
}
ALL: Sequence[Ablation] = (
    _named(
        "unfenced settle",
        "3",
        "settled by a zombie, ended twice",
        (settling, "settle", _settle_unfenced),
    ),
    _named("children after the settlement", "4", "torn, lost", (Engine, "settle", _children_after)),
    _named(
        "children before the settlement",
        "4",
        "torn, ended twice",
        (Engine, "settle", _children_before),
    ),
    _named(
        "acknowledged before it is kept",
        "1",
        "acknowledged and not kept",
        (Engine, "settle", _acknowledge_first),
    ),
    _named("a retry loses the request", "1", "lost", (Engine, "settle", _lose_on_retry)),
    _named(
        "giving back spends an attempt",
        "12",
        "charged for nothing",
        (Settler, "give_back", _give_back_charged),
    ),
    _named(
        "in flight is not counted back",
        "1",
        "the counts are wrong",
        (settling, "_take_back", _take_back_uncounted),
    ),
    _named("no rollback", "4", STUCK, (memory._MemoryTransaction, "undo", _no_undo)),
    _named(
        "no operation ids", "6", "ended twice, key accepted twice", (Engine, "_once", _run_again)
    ),
    _named("late operations are run", "6", "ended twice", (Engine, "_once", _run_late)),
    _named(
        "checkpoint before its requests", "4", "saved apart", (Engine, "add", _checkpoint_first)
    ),
    _named(
        "keys before their requests", "5", "lost, key accepted twice", (Engine, "add", _keys_first)
    ),
    _named(
        "keys are not remembered",
        "5",
        "key accepted twice",
        (settling._Seen, "remember", lambda *_: None),
    ),
    _named("delays are cut short", "9", "early", (step.Step, "make_wait", _wait_half)),
    _named(
        "reaped in spite of heartbeats",
        "2",
        "two holders",
        (Watchlist, "silent", _silent_anyhow),
        (Engine, "reap", _reap_anyhow),
    ),
    _named("nobody is reaped", "1", STUCK, (sweeping.Heart, "take_up", _nobody)),
    _named(
        "a zombie hands out",
        "2",
        "two holders, came back",
        (client.Client, "is_doubtful", _undoubted),
    ),
    _named(
        "an old question ends a silence",
        "2",
        "two holders, settled by a zombie",
        (client.Client, "has_heard", _heard_by_question),
    ),
    _named("deaths are not counted", "7", STUCK, (settling, "count_death", _deathless)),
    _named("what nobody holds is kept", "1", STUCK, (sweeping.Heart, "reconcile", _nobody)),
    _named(
        "drained while in flight",
        "1",
        "ended before it was drained",
        (leasing._Taking, "granted", _drained_early),
    ),
    _named("tokens are used again", "3", "token given twice", (engines, "token_base", _one_base)),
    _named("gates never open", "11", STUCK, (step.Step, "_open_gates", _shut_gates)),
    _named(
        "answers are mixed up",
        "6",
        "ended twice, key accepted twice",
        (Batcher, "_send_batch", _send_mixed_up),
    ),
    _named(
        "links after their page",
        "21",
        "in the index",
        (Worker, "_complete", _links_after),
        world="fetch",
    ),
    _named(
        "a turn after its checkpoint",
        "20",
        "fetched again",
        (feeding.Feeder, "_settle", _turn_after_its_checkpoint),
        world="fetch",
    ),
    _named(
        "trimmed before written",
        "22",
        "in the index",
        (Exporter, "_export_page", _trim_first),
        world="fetch",
    ),
)
BY_NAME = {ablation.name: ablation for ablation in ALL}
