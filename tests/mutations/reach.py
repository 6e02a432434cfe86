"""Which tests reach which function, found by running them all once with nothing changed."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import pytest
from _pytest.runner import runtestprotocol
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state

# Seconds of tests that a mutant may survive before it counts as a survivor.
BUDGET = 10.0
# Whoever breaks something is found out here, so these are among the first.
STRONG = ("test_conformance.py", "test_kit_catches.py")


class TestFailed(Exception):
    """A test that fails with nothing changed can say nothing about a mutant."""


def first_failure(items: Sequence[pytest.Item]) -> str:
    """The test that fails first, of these in their order; nothing where all pass."""
    for item, following in pairwise([*items, None]):
        assert item is not None
        if any(report.failed for report in runtestprotocol(item, nextitem=following, log=False)):
            return item.nodeid
    return ""


class Reach:
    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._reaching: defaultdict[str, list[pytest.Item]] = defaultdict(list)
        self._kills: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def explore(self, items: Sequence[pytest.Item]) -> None:
        set_mutant_under_test("stats")
        for item in items:
            state()._stats.clear()
            started = time.process_time()
            if first_failure([item]):
                raise TestFailed(item.nodeid)
            self._seconds[item.nodeid] = time.process_time() - started
            for function in state()._stats:
                self._reaching[function].append(item)
        set_mutant_under_test("")

    def tests_for(self, function: str) -> list[pytest.Item]:
        """Those that found mutants of it before, the strong ones, and then the quickest."""
        kills = self._kills[function]

        def turn(item: pytest.Item) -> tuple[int, bool, float]:
            return -kills[item.nodeid], not _is_strong(item), self._seconds[item.nodeid]

        return list(self._within_budget(sorted(self._reaching[function], key=turn)))

    def seconds_of(self, items: Iterable[pytest.Item]) -> float:
        return sum(self._seconds[item.nodeid] for item in items)

    def killed(self, function: str, by: str) -> None:
        self._kills[function][by] += 1

    def _within_budget(self, items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
        spent = 0.0
        for item in items:
            spent += self._seconds[item.nodeid]
            if spent > BUDGET and not _is_strong(item):
                return
            yield item


def _is_strong(item: pytest.Item) -> bool:
    return item.path.name in STRONG
