"""Says what a run showed, figure by figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.chaos.outcome import Outcome
from tests.evidence import Evidence


class Teller:
    """Prints each figure, and remembers those that broke their bounds."""

    def __init__(self) -> None:
        self.evidence = Evidence()
        self.broken: list[str] = []

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


def tell(outcome: Outcome, show: Callable[[], None], complain: Callable[[str], None]) -> None:
    name, store = outcome.tier.name, outcome.store
    print(f"\n{name} on {store}: {outcome.seconds:.0f} s, seed {outcome.seed}")
    for cause, count in outcome.account.causes.most_common():
        print(f"  delivered again {count:,} times: {cause}")
    show()
    for problem in [*outcome.account.problems(), *outcome.crashes]:
        complain(problem)
    if outcome.crashes:
        print(outcome.said[-4_000:])
