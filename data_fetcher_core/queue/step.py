"""One atomic step over an ordered store: what it has read, and what it will write.

A step gathers its writes and hands them over in a few batches. Lanes that it touched are put
where they belong (ring, parked, nowhere) at the end, in the order in which they were touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.transactional import family_end
from data_fetcher_core.queue.engine import STEP, Dead, Position, Reason
from data_fetcher_core.queue.lane_state import (
    LaneDefaults,
    LaneState,
    QueueState,
    decode_lane,
    decode_state,
)
from data_fetcher_core.queue.ordered_keys import MIDDLE, OrderedKeys, number_at, sized
from data_fetcher_core.queue.records import identity_of, is_whole, lane_and_priority, stamp
from data_fetcher_core.queue.tokens import SIZE

UNREADABLE = b"unreadable"
# How many bytes the number of an operation takes, before its outcome.
NUMBER = 8
_REASONS = frozenset(Reason)


class Step:
    """The working set of one transaction."""

    def __init__(
        self,
        tx: Transaction,
        keys: OrderedKeys,
        options: LaneDefaults,
        now: int,
        known: Mapping[bytes, bytes | None],
    ) -> None:
        self.tx = tx
        self.keys = keys
        self.options = options
        self.now = now
        # Read at the beginning, in one go; the state is always among it.
        self.known = known
        self._stored_state = known[keys.state]
        self.state: QueueState = decode_state(self._stored_state)
        self._was_in_flight = self.state.leased
        self._lanes: dict[bytes, LaneState] = {}
        self._stored_lanes: dict[bytes, bytes | None] = {}
        self._touched: dict[bytes, None] = {}
        self._puts: dict[bytes, bytes] = {}
        self._deletes: set[bytes] = set()
        self.woke = False
        self.made_room = False

    # --- reading and writing -------------------------------------------------------------------

    def put(self, key: bytes, value: bytes) -> None:
        self._deletes.discard(key)
        self._puts[key] = value

    def delete(self, key: bytes) -> None:
        self._puts.pop(key, None)
        self._deletes.add(key)

    def family(self, prefix: bytes, limit: int | None = None) -> list[tuple[bytes, bytes]]:
        return self.tx.range(prefix, family_end(prefix), limit)

    def lane(self, name: bytes) -> LaneState:
        if name not in self._lanes:
            self.load_lanes([name])
        return self._lanes[name]

    def load_lanes(self, names: Iterable[bytes]) -> None:
        missing = [name for name in dict.fromkeys(names) if name not in self._lanes]
        found = self.tx.get_many([self.keys.lane(name) for name in missing])
        for name, raw in zip(missing, found, strict=True):
            self._stored_lanes[name] = raw
            self._lanes[name] = decode_lane(name, raw)

    def known_lanes(self) -> list[bytes]:
        return list(self._lanes)

    def touch(self, name: bytes) -> LaneState:
        self._touched[name] = None
        return self.lane(name)

    @property
    def concerns_waiters(self) -> bool:
        """Whether somebody who waits for work, for room or for the end should look again."""
        state = self.state
        over = state.ready + state.delayed + state.leased == 0 < self._was_in_flight
        return self.woke or self.made_room or over

    def flush(self) -> None:
        """Hand all writes over, so that what follows reads them."""
        self.place_touched()
        for name, lane in self._lanes.items():
            self._save_lane(lane, self._stored_lanes[name])
        state = self.state.encode()
        if state != self._stored_state:
            self.put(self.keys.state, state)
            self._stored_state = state
        self.tx.delete_many(self._deletes)
        self.tx.put_many(self._puts.items())
        self._deletes, self._puts = set(), {}

    def _save_lane(self, lane: LaneState, stored: bytes | None) -> None:
        alarm = lane.wanted_alarm(self.now)
        if alarm != lane.alarm:
            self._move_alarm(lane, alarm)
        encoded = None if lane.is_blank() else lane.encode()
        if encoded == stored:
            return
        self._stored_lanes[lane.name] = encoded
        key = self.keys.lane(lane.name)
        if encoded is None:
            self.delete(key)
        else:
            self.put(key, encoded)

    def _move_alarm(self, lane: LaneState, alarm: int) -> None:
        if lane.alarm:
            self.delete(self.keys.alarm(lane.alarm, lane.name))
        if alarm:
            self.put(self.keys.alarm(alarm, lane.name), b"")
        lane.alarm = alarm

    # --- the ring ------------------------------------------------------------------------------

    def place_touched(self) -> None:
        for name in self._touched:
            self.place(self._lanes[name])
        self._touched.clear()

    def place(self, lane: LaneState) -> None:
        """A lane with something ready is in the ring if it may be served now, else parked."""
        if not lane.waiting:
            lane.criticals = 0
            self._remove_turn(lane)
            return
        parked = not lane.may_be_served(self.now, self.options)
        if lane.turn and lane.parked == parked:
            return
        self._remove_turn(lane)
        lane.turn, lane.parked = self.state.next_number(), parked
        self.put(self.keys.turn(lane.turn, parked), lane.name)
        self.state.lanes += 1
        # Who waits must look again: something may be leased, or may be once this gate opens.
        self.woke = self.woke or not parked or lane.gate > self.now

    def to_the_back(self, lane: LaneState) -> None:
        """After serving it: out of the ring, and in again behind the others if it may be."""
        self._remove_turn(lane)
        self.place(lane)

    def _remove_turn(self, lane: LaneState) -> None:
        if lane.turn:
            self.delete(self.keys.turn(lane.turn, lane.parked))
            lane.turn, lane.parked = 0, False
            self.state.lanes -= 1

    # --- the moves of one request --------------------------------------------------------------

    def make_ready(self, raw: bytes) -> None:
        """To the tail of its list, ready from now on."""
        name, priority = lane_and_priority(raw)
        place = MIDDLE + self.state.next_number()
        self._list(name, priority, place, stamp(raw, self.now))

    def put_in_front(self, name: bytes, raw: bytes) -> None:
        """To the head of its list, as if it had never left."""
        place = MIDDLE - self.state.next_number()
        self._list(name, lane_and_priority(raw)[1], place, raw)

    def _list(self, name: bytes, priority: int, place: int, raw: bytes) -> None:
        self.put(self.keys.ready(name, priority, place), raw)
        self.touch(name).counts[priority] += 1
        self.state.ready += 1

    def make_wait(self, raw: bytes, delay: int) -> None:
        """Ready now, or delayed until it is due."""
        if delay <= 0:
            self.make_ready(raw)
            return
        self.put(self.keys.delayed(self.now + delay, self.state.next_number()), raw)
        self.state.delayed += 1
        # It may be due before what those who wait are waiting for.
        self.woke = True

    def bury(self, raw: bytes, reason: Reason, detail: bytes) -> None:
        position = Position(self.now, self.state.next_number())
        self.put(self.keys.dead(*position), bytes([reason]) + sized(detail) + raw)
        self.state.dead += 1
        self.state.buried += 1

    @property
    def seen_keys(self) -> bytes:
        """The family of the keys that count as seen."""
        return self.keys.seen_after(self.state.cleared_upto)

    def count_cleared(self, count: int) -> None:
        self.state.cleared += count
        self.made_room = self.made_room or count > 0

    def is_cleared(self, key: bytes, upto: int) -> bool:
        """Whether a request waits under a number that was given out before a clearing began."""
        number = number_at(key, len(key) - NUMBER)
        is_ready = key.startswith(self.keys.ready_lists)
        return (abs(number - MIDDLE) if is_ready else number) <= upto

    def still_waits(self, key: bytes) -> bool:
        """One that a clearing has not come to yet is gone all the same."""
        upto = self.state.cleared_upto
        return not upto or not self.is_cleared(key, upto)

    def drop_if_cleared(self, key: bytes) -> bool:
        if self.still_waits(key):
            return False
        self.count_cleared(1)
        return True

    def drop_if_cancelled(self, raw: bytes, token: bytes = b"") -> bool:
        """A cancelled request goes no further than its next move."""
        if not self.take_mark(raw, token):
            return False
        self.state.cancelled += 1
        return True

    def take_mark(self, raw: bytes, token: bytes) -> bool:
        """Whether it was cancelled: by its id while that is under way, then by its lease's token.

        A token is of this delivery alone: another request may have entered under the id since.
        """
        if not self.state.marks:
            return False
        return bool(token and self.unmark(token)) or self.unmark(identity_of(raw))

    def unmark(self, name: bytes) -> bool:
        if not self.state.marks:
            return False
        mark = self.keys.mark(name)
        if mark in self._deletes or self.tx.get_many([mark])[0] is None:
            return False
        self.delete(mark)
        self.state.marks -= 1
        return True

    # --- what time brings ----------------------------------------------------------------------

    def promote(self) -> bool:
        """Open the gates that have passed, make ready what is due; whether there may be more."""
        gates = self._open_gates()
        self.place_touched()
        due = self._make_due_ready()
        self.place_touched()
        return STEP in {gates, due}

    def _open_gates(self) -> int:
        alarms = self.keys.alarms
        passed = self.tx.range(alarms, self.keys.alarm(self.now + 1, b""), STEP)
        names = [key[len(alarms) + 8 :] for key, _ in passed]
        self.load_lanes(names)
        for name in names:
            self._open_gate(self.touch(name))
        return len(passed)

    def _open_gate(self, lane: LaneState) -> None:
        lane.gate = 0 if lane.gate <= self.now else lane.gate
        lane.arrival = 0 if lane.arrival <= self.now else lane.arrival

    def _make_due_ready(self) -> int:
        first, after = self.keys.delayed_requests, self.keys.delayed(self.now + 1, 0)
        due = self.tx.range(first, after, STEP)
        self.load_lanes(lane_and_priority(raw)[0] for _, raw in due if is_whole(raw))
        for key, raw in due:
            self.delete(key)
            self._promote_one(key, raw)
        self.state.delayed -= len(due)
        return len(due)

    def _promote_one(self, key: bytes, raw: bytes) -> None:
        if self.drop_if_cleared(key):
            return
        if not is_whole(raw):
            self.bury(raw, Reason.CORRUPT, UNREADABLE)
        elif not self.drop_if_cancelled(raw):
            self.make_ready(raw)

    def next_instant(self) -> int | None:
        """The next instant at which a gate opens or a request is due."""
        coming = []
        for family in (self.keys.alarms, self.keys.delayed_requests):
            first = self.tx.range(family, family_end(family), 1)
            coming += [number_at(key, len(family)) for key, _ in first]
        return min(coming, default=None)


def token_in(lease: bytes) -> bytes:
    """The token in the key of a lease."""
    return lease[-SIZE:]


def read_dead(keys: OrderedKeys, key: bytes, value: bytes) -> Dead:
    """A dead letter as it was buried."""
    start = len(keys.dead_letters)
    position = Position(number_at(key, start), number_at(key, start + 8))
    detail_end = 3 + int.from_bytes(value[1:3], "big")
    if len(value) < detail_end or value[0] not in _REASONS:
        return Dead(position, Reason.CORRUPT, UNREADABLE, value)
    return Dead(position, Reason(value[0]), value[3:detail_end], value[detail_end:])
