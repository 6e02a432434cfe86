"""What passes between the engine and its scripts, as arguments and replies."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

from data_fetcher_core.errors import StoreCorrupt
from data_fetcher_core.queue.engine import (
    STEP,
    Addition,
    Admission,
    Admitted,
    Dead,
    Grant,
    Granted,
    LaneChange,
    NewRequest,
    Outcome,
    Position,
    Reason,
    Settled,
    Settlement,
)
from data_fetcher_core.queue.tokens import token_at

T = TypeVar("T")

_NEW = struct.Struct(">QQB")
_MOVE = struct.Struct(">BBQBIHIII")
_LETTER = struct.Struct(">QBH")
_REASON_OFFSET = 8
_REASONS = frozenset(Reason)
# Looking them up is quicker than making them, and there are very many.
_OUTCOMES = {int(outcome): outcome for outcome in Outcome}
_ADMISSIONS = {int(admission): admission for admission in Admission}
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_LONGEST_DETAIL = 0xFFFF
_MOST = (1 << 52) - 1


def seen_hash(seen: bytes) -> bytes:
    """What the store remembers of a seen key."""
    return blake2b(seen, digest_size=16).digest()


def in_parts(items: Sequence[T], weigh: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """The items in order, in parts that weigh no more than ``most`` and hold no more than a step.

    An item that is too heavy by itself is a part of its own.
    """
    part: list[T] = []
    weight = 0
    for item in items:
        heavier = weight + weigh(item)
        if part and (heavier > most or len(part) == STEP):
            yield part
            part, heavier = [], weigh(item)
        part.append(item)
        weight = heavier
    if part:
        yield part


def _duration(microseconds: int) -> int:
    return min(max(microseconds, 0), _MOST) if microseconds else 0


def _pack_request(request: NewRequest) -> bytes:
    seen = seen_hash(request.seen) if request.seen else b""
    start = _NEW.pack(_duration(request.delay), _duration(request.expires_in), len(seen))
    return start + seen + _U16.pack(len(request.told_id)) + request.told_id + request.record


def _contents(addition: Addition) -> Iterator[bytes]:
    for name, value in addition.checkpoint.items():
        yield name
        yield value
    yield from map(_pack_request, addition.requests)


def pack_additions(additions: Iterable[Addition]) -> Iterator[Any]:
    for addition in additions:
        yield 1 if addition.whole else 0 if addition.bound else 2
        yield len(addition.checkpoint)
        yield len(addition.requests)
        yield from _contents(addition)


def pack_settlements(settlements: Iterable[Settlement]) -> Iterator[Any]:
    for settlement in settlements:
        yield _pack_move(settlement)
        yield from _contents(settlement.addition)


def _pack_move(settlement: Settlement) -> bytes:
    token, head, detail = settlement.token, settlement.head, settlement.detail[:_LONGEST_DETAIL]
    result, addition = settlement.result, settlement.addition
    sizes = _MOVE.pack(
        settlement.move,
        settlement.reason,
        _duration(settlement.delay),
        len(token),
        len(head),
        len(detail),
        0 if result is None else 1 + len(result),
        len(addition.checkpoint),
        len(addition.requests),
    )
    return sizes + token + head + detail + (result or b"")


def pack_changes(changes: Iterable[LaneChange]) -> Iterator[Any]:
    for change in changes:
        shut = None if change.shut is None else _duration(change.shut)
        yield change.lane
        yield _or_empty(shut)
        yield int(change.reopen)
        yield from map(_or_empty, (change.interval, change.burst, change.limit))


def _or_empty(value: int | None) -> int | bytes:
    return b"" if value is None else value


def read_admitted(reply: Sequence[Any], additions: Iterable[Addition]) -> list[list[Admitted]]:
    admissions, ids = reply
    reading = _admissions(admissions, ids)
    return [_of_requests(reading, addition.requests) for addition in additions]


def read_settled(reply: Sequence[Any], settlements: Sequence[Settlement]) -> list[Settled]:
    outcomes, admissions, ids = reply
    reading = _admissions(admissions, ids)
    return [
        Settled(Outcome.LOST)
        if outcome == Outcome.LOST
        else Settled(_OUTCOMES[outcome], _of_requests(reading, settlement.addition.requests))
        for outcome, settlement in zip(outcomes, settlements, strict=True)
    ]


def _admissions(admissions: bytes, ids: Iterable[bytes]) -> Iterator[tuple[Admission, bytes]]:
    """Each with the id that is stored with the key of a duplicate, if one is."""
    known = iter(ids)
    for number in admissions:
        admission = _ADMISSIONS[number]
        yield admission, next(known) if admission is Admission.DUPLICATE else b""


def _of_requests(
    reading: Iterator[tuple[Admission, bytes]], requests: Sequence[NewRequest]
) -> list[Admitted]:
    return [_admitted(request, *next(reading)) for request in requests]


def _admitted(request: NewRequest, admission: Admission, told: bytes) -> Admitted:
    is_known = admission is Admission.DUPLICATE
    return Admitted(admission, (told or request.key_id) if is_known else request.id)


def read_granted(reply: Sequence[Any], token_base: bytes) -> Granted:
    wait, suspect, drained, now, paced, *leases = reply
    paces = {
        lane: (interval, limit)
        for lane, interval, limit in zip(paced[::3], paced[1::3], paced[2::3], strict=True)
    }
    grants = [
        _read_grant(token_at(token_base, index), value, paces)
        for index, value in enumerate(leases)
        if value is not None
    ]
    return Granted(grants, None if wait < 0 else wait, bool(suspect), bool(drained), now)


def _read_grant(token: bytes, value: bytes, paces: Mapping[bytes, tuple[int, int]]) -> Grant:
    end = 2 + int.from_bytes(value[:2])
    lane = value[2:end]
    return Grant(token, value[end:], *paces.get(lane, (0, 0)))


def read_dead(reply: Sequence[bytes]) -> list[Dead]:
    return [_read_letter(int(at), raw) for at, raw in zip(reply[::2], reply[1::2], strict=True)]


def _read_letter(at: int, raw: bytes) -> Dead:
    """A letter that was damaged is told as such: it must not hide the others."""
    if len(raw) < _LETTER.size or raw[_REASON_OFFSET] not in _REASONS:
        number = int.from_bytes(raw[:_REASON_OFFSET].ljust(_REASON_OFFSET, b"\0"))
        return Dead(Position(at, number), Reason.CORRUPT, b"unreadable", raw)
    number, reason, detail_size = _LETTER.unpack_from(raw)
    end = _LETTER.size + detail_size
    return Dead(Position(at, number), Reason(reason), raw[_LETTER.size : end], raw[end:])


def read_texts(reply: Sequence[Any]) -> list[bytes]:
    return [read_text(one) for one in reply]


def read_text(reply: Any) -> bytes:
    if not isinstance(reply, bytes):
        raise StoreCorrupt(f"Redis answered {reply!r:.80} where a text was due")
    return reply


def read_counts(reply: Sequence[bytes]) -> dict[str, int]:
    """Names and counts in turn."""
    return {name.decode(): _number(n) for name, n in zip(reply[::2], reply[1::2], strict=True)}


def _number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise StoreCorrupt(f"a stored count is no number: {text[:80]!r}") from None


def read_differences(reply: Sequence[Any]) -> dict[str, tuple[int, int]]:
    """Names with the stored and the true count, in turn."""
    found = zip(reply[::3], reply[1::3], reply[2::3], strict=True)
    return {name.decode(errors="replace"): (stored, true) for name, stored, true in found}
