"""What a transactional store remembers of a lane and of the whole queue, as packed values."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, fields
from operator import attrgetter

from data_fetcher_core.queue.engine import USE_DEFAULT
from data_fetcher_core.queue.ordering import Pace


@dataclass(slots=True)
class QueueState:
    """Counters of a run. The first four say where requests are, the next ten where they went."""

    ready: int = 0
    delayed: int = 0
    leased: int = 0
    dead: int = 0
    lanes: int = 0
    enqueued: int = 0
    completed: int = 0
    retried: int = 0
    buried: int = 0
    duplicates: int = 0
    requeued: int = 0
    cancelled: int = 0
    cleared: int = 0
    purged: int = 0
    keyed: int = 0
    # Below: numbers that order things, not counts of requests.
    number: int = 0
    results: int = 0
    marks: int = 0
    # What waits under a number up to this one was cleared, and so was every key seen by then.
    cleared_upto: int = 0

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def encode(self) -> bytes:
        return _STATE.pack(*_numbers_of(self))


_STATE_NAMES = tuple(f.name for f in fields(QueueState))
_STATE = struct.Struct(f">{len(_STATE_NAMES)}q")
# Every step packs these, so they are read in one call.
_numbers_of = attrgetter(*_STATE_NAMES)


def decode_state(raw: bytes | None) -> QueueState:
    return QueueState() if raw is None else QueueState(*_STATE.unpack(raw))


@dataclass(slots=True)
class LaneState:
    """One lane: how many wait per priority, its gate, pace and limit, and its turn.

    ``turn`` is its place in the ring, or among the parked lanes; 0 when nothing waits.
    ``alarm`` is the instant under which the lane is listed to be looked at again.
    """

    name: bytes
    counts: list[int] = field(default_factory=lambda: [0] * 7)
    gate: int = 0
    arrival: int = 0
    in_flight: int = 0
    interval: int = USE_DEFAULT
    burst: int = USE_DEFAULT
    limit: int = USE_DEFAULT
    criticals: int = 0
    turn: int = 0
    parked: bool = False
    alarm: int = 0

    @property
    def waiting(self) -> int:
        return sum(self.counts)

    def pace(self, options: LaneDefaults) -> Pace:
        return Pace(
            options.lane_interval if self.interval < 0 else self.interval,
            options.lane_burst if self.burst < 0 else self.burst,
        )

    def limit_among(self, options: LaneDefaults) -> int:
        return options.lane_concurrency if self.limit < 0 else self.limit

    def may_be_served(self, now: int, options: LaneDefaults) -> bool:
        limit = self.limit_among(options)
        return self.gate <= now and (limit == 0 or self.in_flight < limit)

    def wanted_alarm(self, now: int) -> int:
        """A gate is watched until it passes; so is a debt of the pace, to be forgotten then."""
        return self.gate or (self.arrival if self.arrival > now else 0)

    def is_blank(self) -> bool:
        return not (
            self.waiting
            or self.alarm
            or self.in_flight
            or self.interval >= 0
            or self.burst >= 0
            or self.limit >= 0
        )

    def encode(self) -> bytes:
        return _LANE.pack(
            *self.counts[1:],
            self.gate,
            self.arrival,
            self.in_flight,
            self.interval,
            self.burst,
            self.limit,
            self.criticals,
            self.turn,
            self.parked,
            self.alarm,
        )


_LANE = struct.Struct(">6qqqqqqqqq?q")


@dataclass(frozen=True, slots=True)
class LaneDefaults:
    """The shared options that moves depend on; durations in microseconds."""

    capacity: int = 0
    max_keyed: int = 0
    max_deaths: int = 5
    ageing_step: int = 60_000_000
    critical_burst: int = 0
    lane_interval: int = 0
    lane_burst: int = 0
    lane_concurrency: int = 0


def decode_lane(name: bytes, raw: bytes | None) -> LaneState:
    if raw is None:
        return LaneState(name)
    values = _LANE.unpack(raw)
    return LaneState(name, [0, *values[:6]], *values[6:])
