"""From a plan that fails to a smaller one that fails the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.simulation.plan import Plan

T = TypeVar("T")
_MOST_TRIES = 150


def shrink(plan: Plan, fails: Callable[[Plan], bool], most: int = _MOST_TRIES) -> Plan:
    """Fewer faults, fewer requests, fewer workers, while it still fails."""
    tries = 0
    smaller: Plan | None = plan
    while smaller is not None:
        plan, smaller = smaller, None
        for candidate in candidates(plan):
            tries += 1
            if tries > most:
                return plan
            if fails(candidate):
                smaller = candidate
                break
    return plan


def candidates(plan: Plan) -> Iterator[Plan]:
    """The boldest first."""
    for faults in _without_a_part(plan.faults):
        yield replace(plan, faults=faults)
    for jobs in _without_a_part(plan.jobs):
        yield replace(plan, jobs=jobs)
    yield from _with_fewer_workers(plan)
    if plan.capacity or plan.lane_concurrency:
        yield replace(plan, capacity=0, lane_concurrency=0)


def _without_a_part(things: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """Without a half, a quarter, … one of them."""
    size = len(things)
    while size > 1:
        size = (size + 1) // 2
        for at in range(0, len(things), size):
            yield (*things[:at], *things[at + size :])
    if len(things) == 1:
        yield ()


def _with_fewer_workers(plan: Plan) -> Iterator[Plan]:
    last = len(plan.layout) - 1
    if last and all(fault.who != last for fault in plan.faults):
        yield replace(plan, layout=plan.layout[:-1], skews=plan.skews[:-1])
    for at, workers in enumerate(plan.layout):
        if workers > 1:
            fewer = (*plan.layout[:at], workers // 2, *plan.layout[at + 1 :])
            yield replace(plan, layout=fewer)
