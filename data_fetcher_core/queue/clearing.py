"""Clearing a queue in an ordered store: all that waits when it begins, and every seen key.

What is there is told from what comes later by the number that a request got where it waits. The
first step notes the newest, and with that all is done: keys are remembered behind that number from
then on, and what is not newer is dropped instead of made ready or handed out. The steps after it
only sweep, once over everything, so they end even if somebody adds as fast as they drop.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from data_fetcher_core.kv_store.transactional import family_end
from data_fetcher_core.queue.engine import MOST_READ, STEP, Cleared
from data_fetcher_core.queue.ordered_keys import MIDDLE, number_at
from data_fetcher_core.queue.step import NUMBER, Step
from data_fetcher_core.queue.tending import unlist

# So many keys are looked through in one step for something to drop: more than others can add.
_MOST_PASSED = 10 * STEP
_PLACE = struct.Struct(">QQ")


class _Place(NamedTuple):
    """What is dropped, up to which number; how many had gone by the last step; the next key."""

    upto: int
    gone: int
    key: bytes


def clear(step: Step, run: bytes, place: bytes) -> Cleared:
    """One step. How many went since the one before, also by the hands of others.

    Who has come to a run that took the place of a forgotten one is at the end: its numbers begin
    anew, and nobody asked that it be cleared.
    """
    if place and not place.startswith(run):
        return Cleared(0, None)
    at = _read(place[len(run) :]) if place else _begin(step)
    key: bytes | None = at.key
    removed = passed = 0
    while key is not None and removed < STEP and passed < _MOST_PASSED:
        count, key = _clear_page(step, at.upto, key)
        removed, passed = removed + count, passed + MOST_READ
    done = step.state.cleared - at.gone
    following = None if key is None else run + _PLACE.pack(at.upto, step.state.cleared) + key
    return Cleared(done, following)


def _read(place: bytes) -> _Place:
    upto, gone = _PLACE.unpack_from(place)
    return _Place(upto, gone, place[_PLACE.size :])


def _begin(step: Step) -> _Place:
    state = step.state
    state.cleared_upto = state.number
    return _Place(state.cleared_upto, state.cleared, _parts(step)[0])


def _parts(step: Step) -> tuple[bytes, ...]:
    return step.keys.delayed_requests, step.keys.ready_lists, step.keys.seen_keys


def _clear_page(step: Step, upto: int, start: bytes) -> tuple[int, bytes | None]:
    """How many were removed, and the key to go on with."""
    family = next(family for family in _parts(step) if start.startswith(family))
    is_seen = family == step.keys.seen_keys
    end = step.seen_keys if is_seen else family_end(family)
    found = [key for key, _ in step.tx.range(start, end, MOST_READ)]
    old = found if is_seen else [key for key in found if step.is_cleared(key, upto)]
    _drop(step, family, old)
    if len(found) < MOST_READ:
        return len(old), _next_part(step, family)
    return len(old), _behind(step, found[-1], upto)


def _next_part(step: Step, family: bytes) -> bytes | None:
    parts = _parts(step)
    return next(iter(parts[parts.index(family) + 1 :]), None)


def _drop(step: Step, family: bytes, keys: Sequence[bytes]) -> None:
    for key in keys:
        if family == step.keys.ready_lists:
            unlist(step, key)
        else:
            step.delete(key)
    if family == step.keys.delayed_requests:
        step.state.delayed -= len(keys)
    if family != step.keys.seen_keys:
        step.count_cleared(len(keys))


def _behind(step: Step, key: bytes, upto: int) -> bytes:
    """The next key; behind one at the tail of a list that is too new, all of that list are."""
    is_ready = key.startswith(step.keys.ready_lists)
    if is_ready and number_at(key, len(key) - NUMBER) > MIDDLE + upto:
        return key[:-NUMBER] + b"\xff" * NUMBER
    return key + b"\x00"


def pack(cleared: Cleared) -> bytes:
    done, place = cleared
    return done.to_bytes(NUMBER) + (b"" if place is None else place)


def unpack(raw: bytes) -> Cleared:
    return Cleared(int.from_bytes(raw[:NUMBER]), raw[NUMBER:] or None)
