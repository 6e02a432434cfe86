"""Says what a run showed, figure by figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.chaos.outcome import Outcome
from tests.demands import NO_MOUNTS
from tests.evidence import Evidence


class Teller:
    """Prints each figure, and remembers those that broke their bounds."""

    def __init__(self) -> None:
        self.evidence = Evidence()
        self.broken: list[str] = []
        self.left_out: list[str] = []

    def show(self, fault: str, what: str, value: float | str, **how: Any) -> None:
        try:
            self.evidence(fault, what, value, **how)
        except AssertionError as error:
            self.broken.append(str(error))
        figure = self.evidence.figures[-1]
        mark = "BROKEN" if self.broken and self.broken[-1].startswith(f"{fault}: {what} ") else ""
        print(f"  {fault:11} {what:52} {value!s:>12} {figure.unit:2} {figure.bound:12} {mark}")

    def complain(self, problem: str) -> None:
        self.broken.append(problem)
        print(f"  BROKEN: {problem}")

    def leave_out(self, row: str, remedy: str) -> None:
        self.left_out.append(row)
        self.evidence.leaves_out(row, remedy)
        print(f"  LEFT OUT: {row}: {remedy}")


# What a machine may not let anybody do: the row that would show it, and what is needed.
_LEFT_OUT = {"fill": ("F43", NO_MOUNTS)}


def tell(outcome: Outcome, show: Callable[[], None], teller: Teller) -> None:
    name, store = outcome.tier.name, outcome.store
    print(f"\n{name} on {store}: {outcome.seconds:.0f} s, seed {outcome.seed}")
    for cause, count in outcome.account.causes.most_common():
        print(f"  delivered again {count:,} times: {cause}")
    show()
    for kind in outcome.untried:
        teller.leave_out(*_LEFT_OUT[kind])
    for problem in outcome.problems():
        teller.complain(problem)
    if outcome.crashes:
        print(outcome.said[-4_000:])
