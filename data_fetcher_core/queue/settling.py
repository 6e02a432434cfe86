"""Taking requests in and settling leases, over an ordered store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from data_fetcher_core.queue.engine import (
    STEP,
    Addition,
    Admission,
    Admitted,
    Move,
    NewRequest,
    Outcome,
    Reason,
    Settled,
    Settlement,
    Slice,
)
from data_fetcher_core.queue.leasing import split_lease
from data_fetcher_core.queue.records import (
    body_of,
    count_death,
    is_whole,
    lane_and_priority,
    stamp_new,
)
from data_fetcher_core.queue.step import UNREADABLE, Step, token_in

_UNLIMITED = 1 << 62
_POISON = b"its process died each time it was being worked on"


def add(step: Step, additions: Sequence[Addition]) -> list[list[Admitted]]:
    """Take requests in as far as the capacity goes."""
    step.promote()
    seen = _Seen(step, additions)
    return [_add_one(step, addition, seen) for addition in additions]


def _add_one(step: Step, addition: Addition, seen: _Seen) -> list[Admitted]:
    capacity = step.options.capacity if addition.bound else 0
    room = capacity - step.state.ready - step.state.delayed if capacity else _UNLIMITED
    if addition.whole and seen.fresh(addition.requests) > room:
        return _no_room_for(addition.requests)
    return _admit(step, addition, seen, room)


def _no_room_for(requests: Iterable[NewRequest]) -> list[Admitted]:
    return [Admitted(Admission.FULL, request.id) for request in requests]


def _admit(step: Step, addition: Addition, seen: _Seen, room: int) -> list[Admitted]:
    admitted: list[Admitted] = []
    for request in addition.requests:
        one = _admit_one(step, request, seen, room)
        if one.admission is Admission.FULL:
            # What follows is brought again with it, and is counted then.
            admitted += _no_room_for(addition.requests[len(admitted) :])
            break
        room -= one.admission is Admission.NEW
        admitted.append(one)
    for name, value in addition.checkpoint.items():
        step.put(step.keys.checkpoint(name), value)
    return admitted


def _admit_one(step: Step, request: NewRequest, seen: _Seen, room: int) -> Admitted:
    known = seen.id_of(request)
    if known is not None:
        step.state.duplicates += 1
        return Admitted(Admission.DUPLICATE, known)
    if _is_over(step, request):
        return Admitted(Admission.OVER, request.id)
    if room <= 0:
        return Admitted(Admission.FULL, request.id)
    seen.remember(request)
    _accept(step, request)
    return Admitted(Admission.NEW, request.id)


def _is_over(step: Step, request: NewRequest) -> bool:
    most = step.options.max_keyed
    return bool(request.seen) and 0 < most <= step.state.keyed


def _accept(step: Step, request: NewRequest) -> None:
    expires_at = step.now + request.expires_in if request.expires_in else 0
    # What is accepted now is not what was to be cancelled.
    step.unmark(request.id)
    step.state.enqueued += 1
    step.state.keyed += bool(request.seen)
    step.make_wait(stamp_new(request.record, step.now, expires_at), request.delay)


class _Seen:
    """The keys of a batch that were seen before it, and those that it brings itself."""

    def __init__(self, step: Step, additions: Iterable[Addition]) -> None:
        requests = [request for addition in additions for request in addition.requests]
        keys = list(dict.fromkeys(request.seen for request in requests if request.seen))
        self._family = step.seen_keys
        found = step.tx.get_many([self._family + key for key in keys])
        self._step = step
        self._told = dict(zip(keys, found, strict=True))
        step.load_lanes(lane_and_priority(request.record)[0] for request in requests)

    def id_of(self, request: NewRequest) -> bytes | None:
        """The id that this request's key is known under, ``None`` if it is new."""
        told = self._told.get(request.seen)
        return None if told is None else told or request.key_id

    def remember(self, request: NewRequest) -> None:
        if request.seen:
            self._told[request.seen] = request.told_id
            self._step.put(self._family + request.seen, request.told_id)

    def fresh(self, requests: Iterable[NewRequest]) -> int:
        new = [request for request in requests if self.id_of(request) is None]
        return len({request.seen or index for index, request in enumerate(new)})


def settle(
    step: Step, client: bytes, settlements: Sequence[Settlement], *, refuse_children: bool
) -> list[Settled]:
    """Settle each lease that the client still holds; the others are lost."""
    keys = [step.keys.lease(client, settlement.token) for settlement in settlements]
    held = dict(zip(keys, step.tx.get_many(keys), strict=True))
    seen = _Seen(step, [s.addition for s in settlements])
    outcomes = []
    for key, settlement in zip(keys, settlements, strict=True):
        value = held[key]
        if value is None:
            outcomes.append(Settled(Outcome.LOST))
        elif refuse_children and settlement.addition.requests:
            outcomes.append(Settled(Outcome.FULL))
        else:
            held[key] = None
            outcomes.append(_settle_one(step, key, value, settlement, seen))
    return outcomes


def _settle_one(
    step: Step, key: bytes, value: bytes, settlement: Settlement, seen: _Seen
) -> Settled:
    lane, raw = split_lease(value)
    addition = settlement.addition
    brings = addition.requests or addition.checkpoint
    admitted = _admit(step, addition, seen, _UNLIMITED) if brings else []
    _take_back(step, key, lane)
    if settlement.move in {Move.COMPLETE, Move.DROP}:
        _end(step, raw, settlement)
        return Settled(Outcome.DONE, admitted)
    if is_whole(raw) and step.drop_if_cancelled(raw, settlement.token):
        return Settled(Outcome.CANCELLED, admitted)
    _move_on(step, lane, raw, settlement)
    return Settled(Outcome.DONE, admitted)


def _move_on(step: Step, lane: bytes, raw: bytes, settlement: Settlement) -> None:
    renewed = _renewed(raw, settlement.head)
    if settlement.move is Move.BURY and (renewed is not None or not settlement.head):
        step.bury(raw if renewed is None else renewed, settlement.reason, settlement.detail)
    elif renewed is None:
        step.bury(raw, Reason.CORRUPT, UNREADABLE)
    elif settlement.move is Move.RELEASE:
        step.state.retried += 1
        step.make_wait(renewed, settlement.delay)
    else:
        step.put_in_front(lane, renewed)


def _renewed(raw: bytes, head: bytes) -> bytes | None:
    """The record with its new head; ``None`` where what is stored was damaged meanwhile."""
    if not is_whole(raw):
        return None
    renewed = head + body_of(raw) if head else raw
    return renewed if is_whole(renewed) else None


def _take_back(step: Step, key: bytes, lane: bytes) -> None:
    step.delete(key)
    step.state.leased -= 1
    step.touch(lane).in_flight -= 1


def _end(step: Step, raw: bytes, settlement: Settlement) -> None:
    if step.state.marks and is_whole(raw):
        step.take_mark(raw, settlement.token)
    if settlement.result is not None:
        step.state.results += 1
        step.put(step.keys.result(step.state.results), settlement.result)
    if settlement.move is Move.COMPLETE:
        step.state.completed += 1
    else:
        step.state.cancelled += 1


def _give_back(step: Step, lane: bytes, raw: bytes) -> None:
    if is_whole(raw):
        step.put_in_front(lane, raw)
    else:
        step.bury(raw, Reason.CORRUPT, UNREADABLE)


def leave(step: Step, client: bytes) -> Slice:
    """Give back what the client holds; forget the client once that is nothing.

    From the last lease on, over all steps: each goes in front of those given back before it.
    """
    held = _held(step, client)[-STEP:]
    for key, lane, raw in reversed(held):
        _take_back(step, key, lane)
        if not (is_whole(raw) and step.drop_if_cancelled(raw, token_in(key))):
            _give_back(step, lane, raw)
        step.place_touched()
    return _end_of(step, client, len(held))


def reap(step: Step, client: bytes) -> Slice:
    """Make ready again what a dead client held, one death older; bury what is poison."""
    held = _held(step, client, STEP)
    for key, lane, raw in held:
        _take_back(step, key, lane)
        _count_death(step, raw, token_in(key))
        step.place_touched()
    return _end_of(step, client, len(held))


def _count_death(step: Step, raw: bytes, token: bytes) -> None:
    if not is_whole(raw):
        step.bury(raw, Reason.CORRUPT, UNREADABLE)
    elif not step.drop_if_cancelled(raw, token):
        older, deaths = count_death(raw)
        if deaths >= step.options.max_deaths:
            step.bury(older, Reason.POISONED, _POISON)
        else:
            step.make_ready(older)


def _held(step: Step, client: bytes, most: int | None = None) -> list[tuple[bytes, bytes, bytes]]:
    """Key, lane and record of the client's first leases, in the order in which it leased them."""
    leases = step.family(step.keys.leases_of(client), most)
    return [(key, *split_lease(value)) for key, value in leases]


def _end_of(step: Step, client: bytes, count: int) -> Slice:
    if count == STEP:
        return Slice(count, more=True)
    step.delete(step.keys.consumer(client))
    for key, _ in step.family(step.keys.ops_of(client)):
        step.delete(key)
    return Slice(count, more=False)
