"""How much fuzzing: little on every change, as much as is asked for by ``python -m tests.fuzz``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings

FACTOR = float(os.environ.get("FUZZ_FACTOR", "1"))


def fuzzed(examples: int) -> Callable[[Any], Any]:
    """So many examples on every change, ``FUZZ_FACTOR`` times as many when that is set."""
    return settings(
        max_examples=max(1, round(examples * FACTOR)),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def seconds_for(work: Callable[[], Any], rounds: int = 3) -> float:
    """The shortest time it took: whatever else the machine does only makes it longer."""
    return min(_once(work) for _ in range(rounds))


def _once(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def growth(work: Callable[[int], Any], size: int) -> float:
    """How many times as long it takes for eight times the size: 8 if linear, 64 if quadratic."""
    small = max(seconds_for(lambda: work(size)), 1e-4)
    return seconds_for(lambda: work(8 * size)) / small
