"""Who comes next. Pure functions that every engine follows and the model restates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from data_fetcher_core.core import Priority

CRITICAL = int(Priority.CRITICAL)


class Head(NamedTuple):
    """The first request of one of a lane's lists."""

    priority: int
    ready_at: int


def rank(head: Head, ageing_step: int) -> tuple[int, int, int]:
    """Smaller is sooner: a level is a head start in time, so nothing waits for ever.

    Ties go to who became ready first, and at one instant to the higher priority.
    """
    return (
        head.ready_at - head.priority * ageing_step,
        head.ready_at,
        -head.priority,
    )


def choose(
    heads: Iterable[Head], ageing_step: int, critical_burst: int, criticals_in_a_row: int
) -> Head:
    """The head to serve: CRITICAL first, unless its burst is used up and another one waits."""
    waiting = list(heads)
    critical = next((head for head in waiting if head.priority == CRITICAL), None)
    others = [head for head in waiting if head.priority != CRITICAL]
    burst_over = 0 < critical_burst <= criticals_in_a_row
    if critical is not None and not (others and burst_over):
        return critical
    return min(others, key=lambda head: rank(head, ageing_step))


class Pace(NamedTuple):
    """How often a lane may be served."""

    interval: int
    burst: int


def next_turn(now: int, arrival: int, pace: Pace) -> tuple[int, int]:
    """After serving a lane: its theoretical arrival instant and the gate that follows (GCRA)."""
    arrival = max(now, arrival) + pace.interval
    return arrival, arrival - pace.burst * pace.interval
