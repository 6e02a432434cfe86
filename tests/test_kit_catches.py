"""The kit is only worth what it catches: each of these is broken, and is found out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from data_fetcher_core.kv_store.base import KeyValueStore, Transaction
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.queue.engine import (
    Addition,
    Admitted,
    Move,
    NewRequest,
    Op,
    Outcome,
    Settled,
    Settlement,
)
from data_fetcher_core.queue.step import Step
from data_fetcher_core.queue.transactional_engine import TransactionalEngine
from data_fetcher_core.testing import FaultyStore, check_queue, check_store
from data_fetcher_core.testing.machines import lockstep_machine


def test_what_is_whole_passes_the_same_machine() -> None:
    run_machine(KVStoreQueue)


# --- broken queues -----------------------------------------------------------------------------


class UnfencedSettlement(TransactionalEngine):
    """Takes any token for good."""

    async def settle(self, op: Op, settlements: Sequence[Settlement]) -> list[Settled]:
        settled = await super().settle(op, settlements)
        return [Settled(Outcome.DONE) if one.outcome is Outcome.LOST else one for one in settled]


class LosesOnRetry(TransactionalEngine):
    """Removes a released request before it puts it back, and forgets to put it back."""

    async def settle(self, op: Op, settlements: Sequence[Settlement]) -> list[Settled]:
        broken = [
            s._replace(move=Move.COMPLETE) if s.move is Move.RELEASE else s for s in settlements
        ]
        return await super().settle(op, broken)


class RunsAgain(TransactionalEngine):
    """Does an operation again when it is sent again."""

    async def _once(self, op: Op, verb: str, run: Any, again: Any, **rest: Any) -> Any:
        reads = [self._keys.consumer(op.client)]
        return await self._step(lambda step: run(step)[1], reads, **rest)


class InsertionOrder(TransactionalEngine):
    """Knows no priorities."""

    async def add(self, op: Op, additions: Sequence[Addition]) -> list[list[Admitted]]:
        flat = [a._replace(requests=[_normal(r) for r in a.requests]) for a in additions]
        return await super().add(op, flat)


def _normal(request: NewRequest) -> NewRequest:
    record = request.record
    return request._replace(record=record[:2] + b"\x03" + record[3:])


class NamespaceBleed(TransactionalEngine):
    """Cuts its namespaces short."""

    def __init__(self, store: Any, namespace: bytes, clock: Any) -> None:
        super().__init__(store, namespace[:5], clock)


class DriftingCount(TransactionalEngine):
    """Counts a request as ready once more with every burial."""

    async def settle(self, op: Op, settlements: Sequence[Settlement]) -> list[Settled]:
        settled = await super().settle(op, settlements)
        if any(s.move is Move.BURY for s in settlements):
            await self._step(_count_one_too_many)
        return settled


def _count_one_too_many(step: Step) -> None:
    step.state.ready += 1


class NoRollback(TransactionalEngine):
    """Saves the children of a page whose lease was lost."""

    async def settle(self, op: Op, settlements: Sequence[Settlement]) -> list[Settled]:
        for settlement in settlements:
            if settlement.addition.requests:
                await self.add(Op(op.client + b"!", op.number), [settlement.addition])
        bare = [s._replace(addition=Addition()) for s in settlements]
        return await super().settle(op, bare)


class TruthyQueue(KVStoreQueue):
    """Takes an empty payload for no payload."""

    async def lease(self, *args: Any, **rest: Any) -> Any:
        return [lease for lease in await super().lease(*args, **rest) if lease.item]


def queue_over(engine: type[TransactionalEngine]) -> Callable[..., KVStoreQueue]:
    def make(store: FaultyStore, namespace: str, *args: Any, **rest: Any) -> KVStoreQueue:
        queue = KVStoreQueue(store, namespace, *args, **rest)
        queue._engine = engine(store, namespace.encode(), rest["clock"])
        return queue

    return make


BROKEN_ENGINES = [
    UnfencedSettlement,
    LosesOnRetry,
    RunsAgain,
    InsertionOrder,
    NamespaceBleed,
    DriftingCount,
    NoRollback,
]


@pytest.mark.parametrize("engine", BROKEN_ENGINES)
async def test_check_queue_finds(engine: type[TransactionalEngine]) -> None:
    with pytest.raises(AssertionError):
        await check_queue(MemoryStore, queue_over(engine))


async def test_check_queue_finds_a_truthiness_test_on_payloads() -> None:
    with pytest.raises(AssertionError, match=r"payload|in went"):
        await check_queue(MemoryStore, TruthyQueue)


# One namespace is all a machine has, so it cannot see two of them bleed.
@pytest.mark.slow
@pytest.mark.parametrize("engine", [e for e in BROKEN_ENGINES if e is not NamespaceBleed])
def test_the_machine_finds(engine: type[TransactionalEngine]) -> None:
    with pytest.raises(AssertionError):
        run_machine(queue_over(engine), examples=5_000)


def run_machine(make_queue: Callable[..., KVStoreQueue], examples: int = 30) -> None:
    run_state_machine_as_test(
        lockstep_machine(MemoryStore, make_queue=make_queue),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )


# --- broken stores -----------------------------------------------------------------------------


class KeepsHalf(MemoryStore):
    """Does not undo what a function did before it failed."""

    async def transact(self, fn: Callable[[Transaction], Any], *, urgent: bool = False) -> Any:
        failure: list[Exception] = []

        def swallow(tx: Transaction) -> Any:
            try:
                return fn(tx)
            except Exception as error:  # noqa: BLE001
                failure.append(error)
                return None

        answer = await super().transact(swallow)
        if failure:
            raise failure[0]
        return answer


class TruthyStore(MemoryStore):
    async def get(self, key: str, default: Any = None, prefix: str | None = None) -> Any:
        return await super().get(key, prefix=prefix) or default


class LimitsBeforeOrdering(MemoryStore):
    async def range_get(
        self,
        start_key: str,
        end_key: str | None = None,
        limit: int | None = None,
        prefix: str | None = None,
    ) -> list[tuple[str, Any]]:
        found = await super().range_get("", None, None, prefix)
        return [pair for pair in found[:limit] if start_key <= pair[0] < (end_key or "\U0010ffff")]


class PastesPrefixes(MemoryStore):
    async def put(
        self, key: str, value: Any, ttl: float | None = None, prefix: str | None = None
    ) -> None:
        await super().put((prefix or "") + key, value, ttl)

    async def get(self, key: str, default: Any = None, prefix: str | None = None) -> Any:
        return await super().get((prefix or "") + key, default)


class NeverForgets(MemoryStore):
    async def put(
        self, key: str, value: Any, ttl: float | None = None, prefix: str | None = None
    ) -> None:
        await super().put(key, value, None, prefix)


class ForgetsOnClose(MemoryStore):
    async def close(self) -> None:
        self._data.clear()


@pytest.mark.parametrize("store", [KeepsHalf, TruthyStore, LimitsBeforeOrdering, PastesPrefixes])
async def test_check_store_finds(store: type[KeyValueStore]) -> None:
    with pytest.raises(AssertionError):
        await check_store(store)


async def test_check_store_finds_what_never_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_fetcher_core.testing.store_checks._PATIENCE", 0.3)
    with pytest.raises((AssertionError, TimeoutError)):
        await check_store(NeverForgets)


async def test_check_store_finds_what_does_not_survive() -> None:
    store = ForgetsOnClose()
    with pytest.raises(AssertionError, match="reopening"):
        await check_store(ForgetsOnClose, reopen=lambda: store)
