"""Whether a row held, and which of its figures are worth a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from tests.evidence import TOLD, Figure
from tests.reliability.faults import Fault
from tests.reliability.kept import Seen, Statement


class Verdict(Enum):
    HELD = "yes"
    PARTLY = "in part"
    BROKEN = "**no**"
    SILENT = "no figure"


def verdict(fault: Fault, said: Mapping[str, Statement]) -> Verdict:
    """Of a row. A test that failed breaks it, whatever its figures say; figures that are only told
    show nothing; what was only tried in part has held in part."""
    figures = [seen.figure for one in said.values() for seen in one.figures]
    if any(one.failures for one in said.values()) or not all(map(holds, figures)):
        return Verdict.BROKEN
    if all(figure.bound == TOLD for figure in figures):
        return Verdict.SILENT
    skipped = any(one.skipped for one in said.values())
    return Verdict.PARTLY if skipped or wanting(fault, said) else Verdict.HELD


def wanting(fault: Fault, said: Mapping[str, Statement]) -> list[str]:
    """The commands that are to show it and have said nothing of it."""
    return [name for name in fault.by if name not in said]


def holds(figure: Figure) -> bool:
    if figure.bound == TOLD:
        return True
    sign, _, bound = figure.bound.partition(" ")
    value, limit = _number(figure.value), _number(bound)
    if sign == "=":
        both_numbers = value is not None and limit is not None
        return value == limit if both_numbers else str(figure.value) == bound
    if value is None or limit is None:
        return False
    return value <= limit if sign == "≤" else value >= limit


class Line(NamedTuple):
    """All figures of one kind: the one that says most, and how many there were."""

    worst: Figure
    times: int


def lines(figures: Iterable[Seen]) -> list[Line]:
    kinds: dict[tuple[str, str, str], list[Seen]] = {}
    for seen in figures:
        kind = seen.figure.what, seen.figure.bound.partition(" ")[0], seen.figure.unit
        kinds.setdefault(kind, []).append(seen)
    return [
        Line(min((seen.figure for seen in all_of), key=_rank), sum(seen.times for seen in all_of))
        for all_of in kinds.values()
    ]


def _rank(figure: Figure) -> tuple[bool, float, float]:
    """The broken first. What may be no more by how near it is, what may be no less by how much
    was asked for: a count of things done says most where it is largest. So does what is told."""
    sign, _, bound = figure.bound.partition(" ")
    value, limit = _number(figure.value), _number(bound)
    if sign == TOLD:
        return True, 0.0, -(value or 0.0)
    if value is None or limit is None or sign == "=":
        return holds(figure), 0.0, 0.0
    if sign == "≥":
        return holds(figure), -limit, value
    return holds(figure), -(value / limit if limit else 0.0), -value


def _number(value: float | str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
