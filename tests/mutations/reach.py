"""Which tests reach which function, found by running them all once with nothing changed."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import pytest
from _pytest.runner import runtestprotocol
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state

_PATIENCE, _SLACK = 6.0, 10.0
# Whoever breaks something is found out here, so these come earlier than their length would say.
STRONG = (
    "test_asked_again.py",
    "test_conformance.py",
    "test_kit_catches.py",
    "test_step.py",
    "test_step_outcomes.py",
)


class TestFailed(Exception):
    """A test that fails with nothing changed can say nothing about a mutant."""


def first_failure(
    items: Sequence[pytest.Item], before_each: Callable[[pytest.Item], None] = lambda _: None
) -> str:
    """The test that fails first, of these in their order, and how; nothing where all pass."""
    for item, following in pairwise([*items, None]):
        assert item is not None
        before_each(item)
        for report in runtestprotocol(item, nextitem=following, log=False):
            if report.failed:
                return f"{item.nodeid}\n{report.longreprtext}"
    return ""


class Reach:
    """``budget`` is how many seconds of tests a mutant may survive before it is a survivor."""

    def __init__(self, budget: float) -> None:
        self._budget = budget
        # How much of the processor each test needs, and how long it takes.
        self._seconds: dict[str, float] = {}
        self._durations: dict[str, float] = {}
        self._breadths: dict[str, int] = {}
        self._reaching: defaultdict[str, list[pytest.Item]] = defaultdict(list)
        self._kills: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def explore(self, items: Sequence[pytest.Item]) -> None:
        set_mutant_under_test("stats")
        for item in items:
            state()._stats.clear()
            started, began = time.process_time(), time.monotonic()
            if failure := first_failure([item]):
                raise TestFailed(failure)
            self._seconds[item.nodeid] = time.process_time() - started
            self._durations[item.nodeid] = time.monotonic() - began
            self._breadths[item.nodeid] = len(state()._stats)
            for function in state()._stats:
                self._reaching[function].append(item)
        set_mutant_under_test("")

    def tests_for(self, function: str) -> list[pytest.Item]:
        """Those that found mutants of it before, and then the quickest and most particular."""
        kills = self._kills[function]

        def turn(item: pytest.Item) -> tuple[int, float]:
            cost = self._seconds[item.nodeid] * self._breadths[item.nodeid]
            return -kills[item.nodeid], cost / 100 if _is_strong(item) else cost

        return list(self._within_budget(sorted(self._reaching[function], key=turn)))

    def patience_for(self, item: pytest.Item) -> float:
        """After so many seconds it hangs: a machine that is busy is no mutant's fault."""
        return max(_PATIENCE, _SLACK * self._durations.get(item.nodeid, 0.0))

    def killed(self, function: str, by: str) -> None:
        self._kills[function][by] += 1

    def _within_budget(self, items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
        spent = 0.0
        for item in items:
            spent += self._seconds[item.nodeid]
            if spent > self._budget:
                return
            yield item


def _is_strong(item: pytest.Item) -> bool:
    return item.path.name in STRONG
