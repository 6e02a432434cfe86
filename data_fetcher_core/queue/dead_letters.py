"""Dead letters as a person reads them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

from data_fetcher_core.core import DeadLetter, DeathReason, Priority
from data_fetcher_core.queue.base import Serializer
from data_fetcher_core.queue.client import Client
from data_fetcher_core.queue.engine import STEP, Dead, Position, QueueEngine, Reason
from data_fetcher_core.queue.entries import read_item
from data_fetcher_core.queue.insisting import insist
from data_fetcher_core.queue.records import CorruptRecord, Record, decode, unpack_failures

_REASONS = {
    Reason.FAILED: DeathReason.FAILED,
    Reason.EXPIRED: DeathReason.EXPIRED,
    Reason.POISONED: DeathReason.POISONED,
    Reason.CORRUPT: DeathReason.CORRUPT,
}
_NOTHING = Record(b"", b"", b"", Priority.NORMAL, b"")


async def pages(
    engine: QueueEngine, op_timeout: float, page_size: int = STEP, most: int = sys.maxsize
) -> AsyncIterator[list[Dead]]:
    """All dead letters, or the first of them, oldest first, a page at a time."""
    after: Position | None = None
    while most > 0:
        want = min(page_size, most)
        page = await insist(lambda after=after, want=want: engine.dead(after, want), op_timeout)  # type: ignore[misc]
        if not page:
            return
        yield page
        most -= len(page)
        after = page[-1].position


async def requeue(
    client: Client, serializer: Serializer, ids: Collection[str] | None, most: int
) -> int:
    """Of the first ``most``, those with these ids; all of them without ids."""
    requeued = 0
    async for page in pages(client.engine, client.options.op_timeout, most=most):
        requeued += await _requeue_at(client, chosen(page, ids, serializer))
    return requeued


async def _requeue_at(client: Client, positions: Sequence[Position]) -> int:
    return await client.ask("requeue", lambda op: client.engine.requeue(op, positions))


def read_dead_letter(dead: Dead, serializer: Serializer) -> DeadLetter:
    record, item = _read(dead.record, serializer)
    return DeadLetter(
        id=record.id.decode(errors="replace") or _position_id(dead.position),
        item=item,
        reason=_REASONS[dead.reason],
        detail=dead.detail.decode(errors="replace"),
        buried_at=dead.position.at / 1e6,
        failures=unpack_failures(record.history),
        attempts=record.attempts,
        deaths=record.deaths,
        lane=record.lane.decode(errors="replace"),
        key=record.key.decode(errors="replace") or None,
        priority=Priority(record.priority),
        raw=dead.record,
    )


def _read(raw: bytes, serializer: Serializer) -> tuple[Record, Any]:
    """The record and its item, or nothing where they cannot be read."""
    try:
        record = decode(raw)
    except CorruptRecord:
        return _NOTHING, None
    try:
        return record, read_item(record, serializer)
    except Exception:  # noqa: BLE001 - that it cannot be read is why it is here
        return record, None


def chosen(page: list[Dead], ids: Collection[str] | None, serializer: Serializer) -> list[Position]:
    """Where those of a page lie that have one of these ids; all of them without ids."""
    letters = [(dead.position, read_dead_letter(dead, serializer).id) for dead in page]
    return [position for position, identity in letters if ids is None or identity in ids]


def _position_id(position: Position) -> str:
    """A name for what has lost its own."""
    return f"corrupt-{position.at}-{position.number}"
