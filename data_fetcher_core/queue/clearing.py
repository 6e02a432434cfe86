"""Clearing a queue in an ordered store: all that waited when it began, and every seen key.

It goes once over the requests and the keys, and passes over what entered meanwhile: otherwise it
would not end as long as somebody adds as fast as it drops.
"""

from __future__ import annotations

from collections.abc import Sequence

from data_fetcher_core.kv_store.transactional import family_end
from data_fetcher_core.queue.engine import STEP, Cleared
from data_fetcher_core.queue.ordered_keys import MIDDLE, number_at
from data_fetcher_core.queue.step import NUMBER, Step
from data_fetcher_core.queue.tending import unlist

# So many pages are looked through in one step for something to drop: more than others can add.
_PAGES = 10


def clear(step: Step, place: bytes) -> Cleared:
    """One step. A place is the newest number when its part of the work began, and a key."""
    at, dropped = place or _newest(step) + _parts(step)[0], 0
    for _ in range(_PAGES):
        count, following = _clear_page(step, at, STEP - dropped)
        dropped += count
        if following is None:
            return Cleared(dropped, None)
        at = following
        if dropped == STEP:
            break
    return Cleared(dropped, at)


def _clear_page(step: Step, place: bytes, most: int) -> tuple[int, bytes | None]:
    newest, start = place[:NUMBER], place[NUMBER:]
    family = next(family for family in _parts(step) if start.startswith(family))
    found = [key for key, _ in step.tx.range(start, family_end(family), most)]
    dropped = _drop(step, family, found, int.from_bytes(newest))
    if len(found) < most:
        return dropped, _next_part(step, family)
    return dropped, newest + _behind(step, found[-1], int.from_bytes(newest))


def _parts(step: Step) -> tuple[bytes, ...]:
    """A delayed request that becomes due meanwhile is then found among the ready ones."""
    return step.keys.delayed_requests, step.keys.ready_lists, step.keys.seen_keys


def _newest(step: Step) -> bytes:
    return step.state.number.to_bytes(NUMBER)


def _next_part(step: Step, family: bytes) -> bytes | None:
    parts = _parts(step)
    following = parts[parts.index(family) + 1 :]
    return _newest(step) + following[0] if following else None


def _drop(step: Step, family: bytes, keys: Sequence[bytes], newest: int) -> int:
    """How many requests it were; seen keys are none."""
    if family == step.keys.seen_keys:
        for key in keys:
            step.delete(key)
        return 0
    old = [key for key in keys if _number(step, key) <= newest]
    for key in old:
        _drop_request(step, key)
    step.state.cleared += len(old)
    step.made_room = step.made_room or bool(old)
    return len(old)


def _drop_request(step: Step, key: bytes) -> None:
    if key.startswith(step.keys.ready_lists):
        unlist(step, key)
    else:
        step.state.delayed -= 1
        step.delete(key)


def _number(step: Step, key: bytes) -> int:
    """Given out when the request came to where it is."""
    number = number_at(key, len(key) - NUMBER)
    return abs(number - MIDDLE) if key.startswith(step.keys.ready_lists) else number


def _behind(step: Step, key: bytes, newest: int) -> bytes:
    """The next key; behind one at the tail of a list that is too new, all of that list are."""
    is_ready = key.startswith(step.keys.ready_lists)
    if is_ready and number_at(key, len(key) - NUMBER) > MIDDLE + newest:
        return key[:-NUMBER] + b"\xff" * NUMBER
    return key + b"\x00"


def pack(cleared: Cleared) -> bytes:
    done, place = cleared
    return done.to_bytes(NUMBER) + (b"" if place is None else place)


def unpack(raw: bytes) -> Cleared:
    return Cleared(int.from_bytes(raw[:NUMBER]), raw[NUMBER:] or None)
