"""From what a holder of a lease says to what the store carries out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from data_fetcher_core.clock import Clock
from data_fetcher_core.core import Enqueued, Failure, Priority
from data_fetcher_core.errors import LeaseLost, StoreFull, ValidationError
from data_fetcher_core.events import Buried, LeasesLost, Retried, Subscriber
from data_fetcher_core.kv_store.values import encode_value
from data_fetcher_core.queue.engine import (
    MOST_CHILDREN,
    Addition,
    Admission,
    Admitted,
    Move,
    NewRequest,
    Outcome,
    Settled,
    Settlement,
)
from data_fetcher_core.queue.entries import (
    Defaults,
    EntryReader,
    check_duration,
    check_several,
    read_checkpoint,
)
from data_fetcher_core.queue.lease import Lease, LeaseState
from data_fetcher_core.queue.options import QueueOptions, microseconds
from data_fetcher_core.queue.records import Record, pack_failures, unpack_failures
from data_fetcher_core.retry import Decision, bounded
from data_fetcher_core.showing import shown

_DEFAULTS = Defaults()
_NOTHING = Addition()
_NONE_ENQUEUED = Enqueued(0, ())
_LONGEST_DETAIL = 1_000
_LONGEST_GOODBYE = 2.0


@dataclass(frozen=True, slots=True)
class Settler:
    """Settles leases of one client; ``submit`` sends a settlement with the next batch."""

    namespace: str
    options: QueueOptions
    max_attempts: int
    reader: EntryReader
    submit: Callable[[Settlement], Awaitable[Settled]]
    forget: Callable[[Lease], None]
    return_leases: Callable[[Sequence[Lease]], list[asyncio.Task[None]]]
    prove: Callable[[Lease], Awaitable[None]]
    is_here: Callable[[], bool]
    tell: Subscriber
    clock: Clock

    def decide(self, lease: Lease, error: BaseException | None) -> Decision:
        return bounded(self.options.retry, lease.attempts + 1, self.max_attempts, error)

    async def confirm(self, lease: Lease) -> None:
        self._check(lease)
        await self.prove(lease)
        self._check(lease)

    async def complete(
        self,
        lease: Lease,
        enqueue: Iterable[Any],
        checkpoint: Mapping[str, Any] | None,
        result: Any,
    ) -> Enqueued:
        addition = self._addition(enqueue, checkpoint)
        packed = None if result is None else encode_value(result, "a result")
        settled = await self._settle(
            lease, Settlement(lease.token, Move.COMPLETE, addition=addition, result=packed)
        )
        return enqueued(settled.admitted)

    async def progress(
        self, lease: Lease, enqueue: Iterable[Any], checkpoint: Mapping[str, Any] | None
    ) -> Enqueued:
        addition = self._addition(enqueue, checkpoint)
        head = lease.record._replace(attempts=0, deaths=0).head()
        settled = await self._settle(
            lease, Settlement(lease.token, Move.GIVE_BACK, head, addition=addition)
        )
        return enqueued(settled.admitted)

    async def drop(self, lease: Lease, checkpoint: Mapping[str, Any] | None) -> None:
        addition = Addition(checkpoint=read_checkpoint(checkpoint))
        await self._settle(lease, Settlement(lease.token, Move.DROP, addition=addition))

    async def release(
        self,
        lease: Lease,
        delay: float,
        error: BaseException | str | None,
        priority: Priority | int | str | None,
    ) -> None:
        attempts, waits = lease.attempts + 1, check_duration(delay, "delay")
        if attempts >= self.max_attempts:
            await self.bury(lease, f"failed {attempts} times", error)
            return
        level = self.reader.priority(priority, lease.priority)
        head = _failed(lease, error, priority=level).head()
        await self._settle(
            lease, Settlement(lease.token, Move.RELEASE, head, delay=microseconds(waits))
        )
        self.tell(Retried(self.namespace, lease.id, attempts, waits, _told(error)))

    async def bury(self, lease: Lease, detail: str, error: BaseException | str | None) -> None:
        head = _failed(lease, error or detail).head()
        if not isinstance(detail, str):
            raise ValidationError(f"detail must be a string, not {shown(detail)}")
        text = (detail or _told(error))[:_LONGEST_DETAIL]
        await self._settle(
            lease,
            Settlement(lease.token, Move.BURY, head, detail=text.encode(errors="replace")),
        )
        cause = _told(error)
        told = f"{cause} ({text})" if cause and cause not in text else text
        self.tell(Buried(self.namespace, lease.id, "failed", told))

    async def give_back(self, lease: Lease) -> None:
        await self._settle(lease, Settlement(lease.token, Move.GIVE_BACK))

    async def hand_back(self, lease: Lease) -> None:
        """Give back whatever becomes of the caller: it is being cancelled, perhaps once more.

        If the store is away this goes on without the caller.
        """
        if not self.is_here():
            return
        with anyio.move_on_after(_LONGEST_GOODBYE, shield=True):
            for giving_back in self.return_leases([lease]):
                await asyncio.wait([giving_back])

    def _addition(self, enqueue: Iterable[Any], checkpoint: Mapping[str, Any] | None) -> Addition:
        if enqueue == () and checkpoint is None:
            return _NOTHING
        return Addition(read_children(self.reader, enqueue), read_checkpoint(checkpoint))

    def _check(self, lease: Lease) -> None:
        if lease.state is not LeaseState.HELD:
            raise LeaseLost(f"request {lease.id!r} was {lease.state.value} before")
        if not self.is_here():
            # It would be sent under numbers that its owner gives to other operations.
            raise LeaseLost(
                f"request {lease.id!r} was leased by another process or event loop: settle it "
                "there, or lease it here. Nothing was changed"
            )

    async def _settle(self, lease: Lease, settlement: Settlement) -> Settled:
        self._check(lease)
        settled = await self.submit(settlement)
        if settled.outcome is Outcome.FULL:
            raise StoreFull(
                f"the store has no room for what {lease.id!r} produced; it is still leased: "
                "complete it without new requests, or again once there is room"
            )
        self.forget(lease)
        if settled.outcome is Outcome.LOST:
            lease.state = LeaseState.LOST
            if settlement.move is not Move.GIVE_BACK or settlement.head:
                self.tell(LeasesLost(self.namespace, (lease.id,)))
            raise LeaseLost(
                f"request {lease.id!r} is no longer leased by this process: it was silent for "
                "too long, or settled twice. Nothing was changed"
            )
        lease.state = LeaseState.SETTLED
        return settled


def read_children(reader: EntryReader, items: Iterable[Any]) -> list[NewRequest]:
    """What a page produced, to enter in one step with its completion."""
    check_several(items, "children are given as a list")
    children = [reader.read(item, _DEFAULTS) for item in items]
    if len(children) > MOST_CHILDREN:
        raise ValidationError(
            f"{len(children)} requests in one step; {MOST_CHILDREN} is the most. Enqueue a part "
            "of them before, with keys: then doing so again after a crash adds nothing twice"
        )
    return children


def enqueued(admitted: Iterable[Admitted]) -> Enqueued:
    outcomes = list(admitted)
    if not outcomes:
        return _NONE_ENQUEUED
    new = [one for one in outcomes if one.admission is Admission.NEW]
    return Enqueued(len(new), [one.id for one in outcomes])


def _failed(lease: Lease, error: BaseException | str | None, priority: int | None = None) -> Record:
    """The record after one more delivery that failed."""
    record = lease.record
    kind = type(error).__name__ if isinstance(error, BaseException) else "released"
    failure = Failure(kind, _told(error), lease.now)
    history = _appended(record.history, failure)
    return record._replace(
        attempts=record.attempts + 1,
        history=history,
        priority=record.priority if priority is None else priority,
    )


def _appended(history: bytes, failure: Failure) -> bytes:
    return pack_failures((*unpack_failures(history), failure))


def _told(error: BaseException | str | None) -> str:
    """The error in words; one that cannot say what it is, is told by its type."""
    if error is None:
        return ""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 - anybody's __str__ may raise anything
        return type(error).__name__
