"""A failure as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.histories import Event, shown
from tests.simulation.world import Result

_MOST_VIOLATIONS = 5
_MOST_EVENTS = 120


def report(result: Result, world: str) -> Iterator[str]:
    """What was planned, what was broken, and the history of those it concerns."""
    yield f"{result.plan} ({world} world, trace {result.trace[:12]})"
    for fault in sorted(result.plan.faults, key=lambda fault: fault.at):
        yield f"  {fault}"
    for violation in result.violations[:_MOST_VIOLATIONS]:
        yield f"  BROKEN  {violation}"
    events = sorted(_concerned(result), key=lambda event: event.start)
    yield f"  {'start':>11} {'end':>11}  who    what      request        outcome"
    for event in events[:_MOST_EVENTS]:
        yield f"  {shown(event)}"
    left_out = len(result.history) - len(events[:_MOST_EVENTS])
    if left_out:
        yield f"  … and {left_out} events of others"


def _concerned(result: Result) -> Iterator[Event]:
    names = {violation.request for violation in result.violations[:_MOST_VIOLATIONS]}
    whole = len(result.history) <= _MOST_EVENTS or names == {""}
    for event in result.history:
        related = any(name and event.request.startswith(name) for name in names)
        if whole or related or event.verb == "silent":
            yield event
