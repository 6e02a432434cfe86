"""The lease step over an ordered store: whose turn it is, and what that lane gives."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from data_fetcher_core.kv_store.transactional import family_end
from data_fetcher_core.queue.engine import MOST_READ, STEP, STEP_BYTES, Grant, Granted, Reason
from data_fetcher_core.queue.lane_state import LaneState
from data_fetcher_core.queue.ordered_keys import sized
from data_fetcher_core.queue.ordering import CRITICAL, Head, choose, next_turn
from data_fetcher_core.queue.records import Fields, fields_of
from data_fetcher_core.queue.step import UNREADABLE, Step
from data_fetcher_core.queue.tokens import token_at

_Listed = tuple[bytes, bytes]


def lease_value(lane: bytes, raw: bytes) -> bytes:
    """What is stored of a lease: the lane it was taken from, then the record."""
    return sized(lane) + raw


def split_lease(value: bytes) -> tuple[bytes, bytes]:
    """The lane and the record of a stored lease."""
    end = 2 + int.from_bytes(value[:2], "big")
    return value[2:end], value[end:]


def grant_of(step: Step, token: bytes, lane: LaneState, raw: bytes) -> Grant:
    interval = lane.pace(step.options).interval
    return Grant(token, raw, interval, lane.limit_among(step.options))


def lease(
    step: Step,
    client: bytes,
    want: int,
    token_base: bytes,
    *,
    lanes: Sequence[bytes] | None,
    steal: Sequence[bytes],
) -> Granted:
    """Grant up to ``want`` requests as if one by one: a lane gives one and goes to the back."""
    more = step.promote()
    step.flush()
    taking = _Taking(step, client, token_base, want)
    groups = [None] if lanes is None else [lanes, steal]
    for group in groups:
        taking.serve(_ring(step, want) if group is None else _among(step, group))
    return taking.granted(more)


def _ring(step: Step, want: int) -> Iterator[LaneState]:
    """The lanes of the ring from its front, read a page at a time."""
    start, end = step.keys.ring, family_end(step.keys.ring)
    while page := step.tx.range(start, end, want):
        step.load_lanes(name for _, name in page)
        yield from [step.lane(name) for _, name in page]
        start = page[-1][0] + b"\x00"


def _among(step: Step, names: Sequence[bytes]) -> Iterator[LaneState]:
    """Those of the named lanes that are in the ring, in its order."""
    step.load_lanes(names)
    lanes = [step.lane(name) for name in dict.fromkeys(names)]
    in_ring = [lane for lane in lanes if lane.turn and not lane.parked]
    return iter(sorted(in_ring, key=lambda lane: lane.turn))


class _Taking:
    """A lease batch while it is being filled."""

    def __init__(self, step: Step, client: bytes, token_base: bytes, want: int) -> None:
        self.step = step
        self.token_base = token_base
        self.want = want
        self.grants: list[Grant] = []
        self.removed = 0
        self.weight = 0
        self.suspect = False
        self.leases = step.keys.leases_of(client)
        held = step.family(self.leases, 2)
        self.alone = len(held) == 1 and self._is_suspect(fields_of(split_lease(held[0][1])[1]))
        self.holds_any = bool(held)
        self.fronts: dict[bytes, _Front] = {}
        # Those served, the one that was served last at the end.
        self.served: dict[bytes, LaneState] = {}

    def serve(self, fresh: Iterator[LaneState]) -> None:
        """First every lane once, in the ring's order; then round and round those served."""
        again: deque[_Front] = deque()
        while self._wants_more():
            front = self._next_of(fresh) or (again.popleft() if again else None)
            if front is None:
                break
            if self._take_from(front) and front.lists and front.is_open(self.step.now):
                again.append(front)
        for lane in self.served.values():
            self.step.to_the_back(lane)
        self.served.clear()

    def _next_of(self, fresh: Iterator[LaneState]) -> _Front | None:
        """The next lane that may be served: the limit may be lower than when it got its turn."""
        while self._wants_more() and (lane := next(fresh, None)) is not None:
            if lane.may_be_served(self.step.now, self.step.options):
                return self._front_of(lane)
            self.step.place(lane)
            self.removed += 1
        return None

    def _front_of(self, lane: LaneState) -> _Front:
        if lane.name not in self.fronts:
            share = self.want if self.step.state.lanes <= 1 else 1 + self.want // 16
            share = min(share, MOST_READ)
            self.fronts[lane.name] = _Front(self.step, lane, share)
        return self.fronts[lane.name]

    def _wants_more(self) -> bool:
        if self.alone or self.weight >= STEP_BYTES:
            return False
        return len(self.grants) < self.want and self.removed < STEP

    def _take_from(self, front: _Front) -> bool:
        """Take one request; whether the lane is to be asked again in this batch."""
        while front.lists and self.removed < STEP:
            found = front.first()
            key, raw = found.first()
            fields = fields_of(raw)
            if self.step.drop_if_cleared(key) or not self._is_usable(raw, fields):
                self._remove(front, found, key)
                self.step.place(front.lane)
                continue
            is_suspect = self._is_suspect(fields)
            if is_suspect and (self.holds_any or self.grants):
                self.suspect = True
                return False
            self._grant(front, found, key, raw)
            self.alone = is_suspect
            return True
        return False

    def _is_usable(self, raw: bytes, fields: Fields | None) -> bool:
        """Whether it may be handed out; if not, it is dropped or buried here."""
        if fields is None:
            self.step.bury(raw, Reason.CORRUPT, UNREADABLE)
            return False
        if self.step.drop_if_cancelled(raw):
            return False
        if 0 < fields.expires_at <= self.step.now:
            self.step.bury(raw, Reason.EXPIRED, b"it waited longer than it was to wait")
            return False
        return True

    def _is_suspect(self, fields: Fields | None) -> bool:
        """One death from the limit: held alone, so that no neighbour dies with it."""
        return fields is not None and fields.deaths >= self.step.options.max_deaths - 1

    def _grant(self, front: _Front, found: _List, key: bytes, raw: bytes) -> None:
        step, lane, pace = self.step, front.lane, front.pace
        token = token_at(self.token_base, len(self.grants))
        self._remove(front, found, key)
        step.put(self.leases + token, lease_value(lane.name, raw))
        step.state.leased += 1
        self.weight += len(raw)
        lane.in_flight += 1
        lane.criticals = lane.criticals + 1 if found.priority == CRITICAL else 0
        if pace.interval:
            lane.arrival, gate = next_turn(step.now, lane.arrival, pace)
            lane.gate = max(lane.gate, gate)
        self.served.pop(lane.name, None)
        self.served[lane.name] = lane
        self.grants.append(Grant(token, raw, pace.interval, front.limit))

    def _remove(self, front: _Front, found: _List, key: bytes) -> None:
        front.pop(found)
        self.step.delete(key)
        self.step.state.ready -= 1
        self.removed += 1
        self.step.made_room = True

    def granted(self, more: bool) -> Granted:
        state = self.step.state
        drained = state.ready + state.delayed + state.leased == 0
        suspect = self.suspect or self.alone
        return Granted(self.grants, self._wait(more), suspect, drained, self.step.now)

    def _wait(self, more: bool) -> int | None:
        if len(self.grants) == self.want or self.alone:
            return None
        if more or self.removed >= STEP or self.weight >= STEP_BYTES:
            return 0
        self.step.flush()
        instant = self.step.next_instant()
        return None if instant is None else max(instant - self.step.now, 0)


class _Front:
    """A lane while requests are taken from it: its lists with something in them."""

    __slots__ = ("_options", "lane", "limit", "lists", "pace")

    def __init__(self, step: Step, lane: LaneState, share: int) -> None:
        self.lane = lane
        self.pace = lane.pace(step.options)
        self.limit = lane.limit_among(step.options)
        waiting = [priority for priority, count in enumerate(lane.counts) if count]
        self.lists = [_List(step, lane.name, priority, share) for priority in waiting]
        self._options = step.options

    def is_open(self, now: int) -> bool:
        return self.lane.may_be_served(now, self._options)

    def first(self) -> _List:
        """The list whose head is to be served."""
        if len(self.lists) == 1:
            return self.lists[0]
        by_head = {waiting.head(): waiting for waiting in self.lists}
        step, burst = self._options.ageing_step, self._options.critical_burst
        return by_head[choose(by_head, step, burst, self.lane.criticals)]

    def pop(self, found: _List) -> None:
        found.pop()
        counts = self.lane.counts
        counts[found.priority] -= 1
        if not counts[found.priority]:
            self.lists.remove(found)


class _List:
    """The front of one of a lane's lists, read a few at a time.

    They may be large: as many are read as were taken before, so that little is read in vain.
    """

    def __init__(self, step: Step, lane: bytes, priority: int, share: int) -> None:
        self.priority = priority
        self._step = step
        self._start = step.keys.list(lane, priority)
        self._end = family_end(self._start)
        self._share = share
        self._taken = 0
        self._read: deque[_Listed] = deque()

    def first(self) -> _Listed:
        if not self._read:
            few = min(self._share, max(2, self._taken))
            page = self._step.tx.range(self._start, self._end, few)
            self._read.extend(page)
            self._start = page[-1][0] + b"\x00"
        return self._read[0]

    def pop(self) -> None:
        self._read.popleft()
        self._taken += 1

    def head(self) -> Head:
        fields = fields_of(self.first()[1])
        return Head(self.priority, 0 if fields is None else fields.ready_at)
