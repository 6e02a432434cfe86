"""Looking after a queue in an ordered store: lanes, dead letters, cancelling, counting."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import islice
from typing import TypeVar

from data_fetcher_core.core import QueueStats
from data_fetcher_core.kv_store.transactional import count_keys, family_end
from data_fetcher_core.queue.engine import (
    MOST_READ,
    STEP,
    STEP_BYTES,
    Dead,
    LaneChange,
    Position,
)
from data_fetcher_core.queue.identity import seen_from_key
from data_fetcher_core.queue.lane_state import LaneState
from data_fetcher_core.queue.leasing import split_lease
from data_fetcher_core.queue.ordering import CRITICAL, Head, choose
from data_fetcher_core.queue.records import forgive, identity_of, is_whole, key_of, ready_at_of
from data_fetcher_core.queue.step import NUMBER, Step, read_dead, token_in

T = TypeVar("T")


def change_lanes(step: Step, changes: Sequence[LaneChange]) -> int:
    for change in changes:
        lane = step.touch(change.lane)
        if change.reopen:
            lane.gate = lane.arrival = 0
        if change.shut is not None:
            lane.gate = max(lane.gate, step.now + change.shut)
        lane.interval = lane.interval if change.interval is None else change.interval
        lane.burst = lane.burst if change.burst is None else change.burst
        lane.limit = lane.limit if change.limit is None else change.limit
    return len(changes)


def requeue(step: Step, positions: Sequence[Position]) -> int:
    """Make dead letters ready again; what cannot be read stays where it is."""
    keys = [step.keys.dead(*position) for position in positions]
    requeued = 0
    for key, value in zip(keys, step.tx.get_many(keys), strict=True):
        raw = b"" if value is None else read_dead(step.keys, key, value).record
        if is_whole(raw):
            step.delete(key)
            step.unmark(identity_of(raw))
            step.make_ready(forgive(raw))
            requeued += 1
    step.state.dead -= requeued
    step.state.requeued += requeued
    return requeued


def purge(step: Step, older_than: int) -> int:
    end = step.keys.dead(max(step.now - older_than + 1, 0), 0)
    found = step.tx.range(step.keys.dead_letters, end, STEP)
    for key, _ in found:
        step.delete(key)
    step.state.dead -= len(found)
    step.state.purged += len(found)
    return len(found)


def unlist(step: Step, key: bytes) -> None:
    """Take a ready request out of the middle of its list."""
    start = len(step.keys.ready_lists) + 2
    lane = step.touch(key[start:-9])
    lane.counts[key[-9]] -= 1
    step.state.ready -= 1
    step.delete(key)


def mark(step: Step, names: Sequence[bytes]) -> int:
    """Ids of requests, or tokens of leases, to be dropped at their next move."""
    keys = [step.keys.mark(name) for name in dict.fromkeys(names)]
    new = [k for k, known in zip(keys, step.tx.get_many(keys), strict=True) if known is None]
    for key in new:
        step.put(key, b"")
    step.state.marks += len(new)
    return 0


def walk_wanted(
    start: bytes, family: bytes, ids: Sequence[bytes], tally: bytes, *, forget: bool
) -> Callable[[Step], bytes | None]:
    """A step that drops those wanted in one slice, and adds to the tally: where to go on."""
    wanted = frozenset(ids)

    def is_chosen(step: Step, key: bytes, raw: bytes) -> bool:
        return is_whole(raw) and identity_of(raw) in wanted and step.still_waits(key)

    def walk(step: Step) -> bytes | None:
        number, so_far = _tallied(step, tally)
        if so_far < 0:
            return None
        found = step.tx.range(start, family_end(family), STEP)
        chosen = [(key, raw) for key, raw in found if is_chosen(step, key, raw)]
        for key, raw in chosen:
            _drop(step, key, raw, forget=forget)
        step.put(tally, number + b"%d" % (so_far + len(chosen)))
        return found[-1][0] + b"\x00" if len(found) == STEP else None

    return walk


def _drop(step: Step, key: bytes, raw: bytes, *, forget: bool) -> None:
    if key.startswith(step.keys.ready_lists):
        unlist(step, key)
    else:
        step.state.delayed -= 1
        step.delete(key)
    step.state.cancelled += 1
    step.made_room = True
    if forget:
        _forget_key(step, raw)


def _forget_key(step: Step, raw: bytes) -> None:
    if key := key_of(raw):
        step.delete(step.seen_keys + seen_from_key(key))


def _tallied(step: Step, tally: bytes) -> tuple[bytes, int]:
    """The number of the operation that keeps the tally, and what it has come to; see below."""
    stored = step.tx.get_many([tally])[0] or bytes(NUMBER)
    return stored[:NUMBER], int(stored[NUMBER:] or b"0")


def end_cancelling(ids: Sequence[bytes], tally: bytes, *, forget: bool) -> Callable[[Step], int]:
    """A step that marks what is in flight by its token, and nothing by its id any more.

    It answers the tally, turned below zero by ``~``: it is closed, and counts nothing more.
    """
    wanted = frozenset(ids)

    def end(step: Step) -> int:
        number, so_far = _tallied(step, tally)
        if so_far < 0:
            return so_far
        held = [(key, raw) for key, _, raw in _all_leases(step) if is_whole(raw)]
        chosen = [(token_in(key), raw) for key, raw in held if identity_of(raw) in wanted]
        for _, raw in chosen if forget else ():
            _forget_key(step, raw)
        for identity in wanted:
            step.unmark(identity)
        mark(step, [token for token, _ in chosen])
        closed = ~(so_far + len(chosen))
        step.put(tally, number + b"%d" % closed)
        return closed

    return end


def _all_leases(step: Step) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Key, lane and record of each."""
    for key, value in step.family(step.keys.leases):
        yield key, *split_lease(value)


def peek(step: Step, want: int) -> list[bytes]:
    """Lease order, as if every lane were open."""
    turns = [*step.family(step.keys.ring, want), *step.family(step.keys.parked, want)]
    turns.sort(key=lambda turn: turn[0][len(step.keys.ring) :])
    step.load_lanes(name for _, name in turns)
    orders = [_in_order(step, step.lane(name), want) for _, name in turns]
    return _within_a_step(_by_turns(orders), want, len)


def _by_turns(orders: Iterable[Iterator[bytes]]) -> Iterator[bytes]:
    """One of each, round and round, until nothing is left."""
    waiting = deque(orders)
    while waiting:
        order = waiting.popleft()
        raw = next(order, None)
        if raw is not None:
            yield raw
            waiting.append(order)


def _in_order(step: Step, lane: LaneState, want: int) -> Iterator[bytes]:
    """The requests of one lane as they would be served."""
    lists = {p: _listed(step, lane.name, p, want) for p, n in enumerate(lane.counts) if n}
    options, row = step.options, lane.criticals
    firsts = {p: raw for p, rest in lists.items() if (raw := next(rest, None)) is not None}
    while firsts:
        heads = [Head(priority, ready_at_of(raw)) for priority, raw in firsts.items()]
        chosen = choose(heads, options.ageing_step, options.critical_burst, row).priority
        row = row + 1 if chosen == CRITICAL else 0
        yield firsts.pop(chosen)
        if (following := next(lists[chosen], None)) is not None:
            firsts[chosen] = following


def _listed(step: Step, lane: bytes, priority: int, want: int) -> Iterator[bytes]:
    start = step.keys.list(lane, priority)
    # Not all that lie there are shown.
    found = _few_at_a_time(step, start, family_end(start), want + STEP)
    return (raw for key, raw in found if is_whole(raw) and step.still_waits(key))


def shown(step: Step, start: bytes, end: bytes, want: int) -> list[tuple[bytes, bytes]]:
    """The first pairs from ``start`` on, as many as one answer may hold."""
    found = _few_at_a_time(step, start, end, want)
    return _within_a_step(found, want, lambda pair: len(pair[1]))


def _few_at_a_time(
    step: Step, start: bytes, end: bytes, want: int
) -> Iterator[tuple[bytes, bytes]]:
    """They may be large: as many are read as were taken before, so that little is in vain."""
    taken = 0
    while page := step.tx.range(start, end, min(want - taken, MOST_READ, max(2, taken))):
        yield from page
        taken += len(page)
        start = page[-1][0] + b"\x00"


def _within_a_step(values: Iterable[T], want: int, size_of: Callable[[T], int]) -> list[T]:
    """The first ``want``, up to the one with which a step is as heavy as it may be."""
    taken, weight = [], 0
    for value in islice(values, want):
        taken.append(value)
        weight += size_of(value)
        if weight >= STEP_BYTES:
            break
    return taken


def stats(step: Step) -> QueueStats:
    names = (field.name for field in fields(QueueStats))
    return QueueStats(**{name: getattr(step.state, name) for name in names})


def recount(step: Step) -> dict[str, tuple[int, int]]:
    """Count again what is only derived, and mend what was wrong: name to (stored, true)."""
    in_flight = Counter(lane for _, lane, _ in _all_leases(step))
    wrong = _recount_totals(step, sum(in_flight.values()))
    for key, _ in step.family(step.keys.lanes):
        step.lane(key[len(step.keys.lanes) :])
    for name in {*in_flight, *step.known_lanes()}:
        stored, true = step.lane(name).in_flight, in_flight[name]
        if stored != true:
            wrong[f"in_flight:{name.decode(errors='replace')}"] = (stored, true)
            step.touch(name).in_flight = true
    return wrong


def _recount_totals(step: Step, leased: int) -> dict[str, tuple[int, int]]:
    true = {
        "ready": count_keys(step.tx, step.keys.ready_lists),
        "delayed": count_keys(step.tx, step.keys.delayed_requests),
        "leased": leased,
        "dead": count_keys(step.tx, step.keys.dead_letters),
    }
    wrong = {n: (getattr(step.state, n), c) for n, c in true.items() if getattr(step.state, n) != c}
    for name, (_, count) in wrong.items():
        setattr(step.state, name, count)
    return wrong


def dead(step: Step, after: Position | None, want: int) -> list[Dead]:
    """Dead letters from the oldest on, behind the given one."""
    family = step.keys.dead_letters
    start = family if after is None else step.keys.dead(*after) + b"\x00"
    found = shown(step, start, family_end(family), want)
    return [read_dead(step.keys, key, value) for key, value in found]


def swap(step: Step, name: bytes, expected: bytes | None, value: bytes | None) -> bool:
    """Save a checkpoint if the stored one is as expected; whether it is there now."""
    key = step.keys.checkpoint(name)
    stored = step.tx.get_many([key])[0]
    if stored == expected and value is None:
        step.delete(key)
    elif stored == expected and value is not None:
        step.put(key, value)
    return stored in {expected, value}
