"""Figures that show what a fault did: each is held to its bound when it is taken.

A test asks for the fixture ``shows``; a command of its own makes an :class:`Evidence` and writes
it with :meth:`Evidence.save`. ``python -m tests.reliability`` gathers both into one table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.reliability.faults import CATALOGUE

TOLD = "told"
"""In place of a bound: whatever it is, it is no fault."""
LEFT_OUT = "left out"
"""In place of a bound: it could not be tried here, and so has not held."""


@dataclass(frozen=True)
class Figure:
    fault: str
    what: str
    value: float | str
    bound: str
    unit: str = ""


class Evidence:
    """Call it with a figure and exactly one bound, or ``told=True`` where none can be given; what
    breaks its bound fails at once, and so does a figure of no row, which would be on no page."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []

    def __call__(
        self,
        fault: str,
        what: str,
        value: float | str,
        *,
        exactly: float | str | None = None,
        at_most: float | None = None,
        at_least: float | None = None,
        told: bool = False,
        unit: str = "",
    ) -> None:
        assert fault in CATALOGUE, f"{fault} is no row of tests/reliability/faults.py"
        bounds = {"=": exactly, "≤": at_most, "≥": at_least, TOLD: "" if told else None}
        ((sign, bound),) = [(sign, bound) for sign, bound in bounds.items() if bound is not None]
        kept = TOLD if told else f"{sign} {bound}"
        self.figures.append(Figure(fault, what, value, kept, unit))
        assert _holds(value, sign, bound), f"{fault}: {what} is {value}, not {sign} {bound} {unit}"

    def leaves_out(self, fault: str, why: str) -> None:
        """Say that a row could not be tried, and what it would need."""
        self.figures.append(Figure(fault, LEFT_OUT, why, LEFT_OUT))

    def save(self, path: Path) -> None:
        path.write_text(json.dumps([asdict(figure) for figure in self.figures], indent=1))


def load(path: Path) -> list[Figure]:
    return as_figures(json.loads(path.read_text()))


def as_figures(plain: Iterable[dict[str, Any]]) -> list[Figure]:
    return [Figure(**one) for one in plain]


def _holds(value: Any, sign: str, bound: Any) -> bool:
    if sign == TOLD:
        return True
    if sign == "=":
        return bool(value == bound)
    return bool(value <= bound if sign == "≤" else value >= bound)
