"""From a plan that fails to a smaller one that fails the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.simulation.plan import Plan

T = TypeVar("T")
_MOST_TRIES = 150


class _Tries:
    """Tries what is left to be tried."""

    def __init__(self, fails: Callable[[Plan], bool], most: int) -> None:
        self._fails = fails
        self._left = most

    def first_that_fails(self, candidates: Iterator[Plan]) -> Plan | None:
        for candidate in candidates:
            if self._left <= 0:
                return None
            self._left -= 1
            if self._fails(candidate):
                return candidate
        return None


def shrink(plan: Plan, fails: Callable[[Plan], bool], most: int = _MOST_TRIES) -> Plan:
    """Fewer faults, fewer requests, fewer workers, in turn, while it still fails."""
    tries = _Tries(fails, most)
    before: Plan | None = None
    while plan != before:
        before = plan
        for way in (_with_fewer_faults, _with_fewer_jobs, _with_fewer_workers, _without_bounds):
            while (smaller := tries.first_that_fails(way(plan))) is not None:
                plan = smaller
    return plan


def _with_fewer_faults(plan: Plan) -> Iterator[Plan]:
    for faults in _without_a_part(plan.faults):
        yield replace(plan, faults=faults)


def _with_fewer_jobs(plan: Plan) -> Iterator[Plan]:
    for jobs in _without_a_part(plan.jobs):
        yield replace(plan, jobs=jobs)


def _without_bounds(plan: Plan) -> Iterator[Plan]:
    if plan.capacity or plan.lane_concurrency:
        yield replace(plan, capacity=0, lane_concurrency=0)


def _without_a_part(things: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """Without any, a half, a quarter, … one of them."""
    size = 2 * len(things)
    while size > 1:
        size = (size + 1) // 2
        for at in range(0, len(things), size):
            yield (*things[:at], *things[at + size :])


def _with_fewer_workers(plan: Plan) -> Iterator[Plan]:
    last = len(plan.layout) - 1
    if last and all(fault.who != last for fault in plan.faults):
        yield replace(plan, layout=plan.layout[:-1], skews=plan.skews[:-1])
    for at, workers in enumerate(plan.layout):
        if workers > 1:
            fewer = (*plan.layout[:at], workers // 2, *plan.layout[at + 1 :])
            yield replace(plan, layout=fewer)
