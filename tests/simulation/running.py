"""Many seeds, one after another or in several processes, and what came of them."""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from tests.simulation.ablations import Ablation
from tests.simulation.fetch_world import FetchWorld
from tests.simulation.plan import WHOLE, Plan, Size, draw, skewed, straight
from tests.simulation.queue_world import QueueWorld
from tests.simulation.world import Result, World

WORLDS: dict[str, type[World]] = {"queue": QueueWorld, "fetch": FetchWorld}
# A run with the fetcher is simulated for every so many seeds.
_FETCH_EVERY = 4
_CHUNK = 20
_COLLECT_EVERY = 8


def simulate(plan: Plan, world: str = "queue", ablation: Ablation | None = None) -> Result:
    with nullcontext() if ablation is None else ablation.applied():
        return WORLDS[world](plan).run()


@dataclass
class Summary:
    """What came of some seeds. ``failures`` are pairs of a seed and a world, ``violations`` are
    counted by the rule that was broken."""

    seeds: int = 0
    worlds: Counter[str] = field(default_factory=Counter)
    figures: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)
    violations: Counter[str] = field(default_factory=Counter)
    traces: dict[int, str] = field(default_factory=dict)

    def add(self, other: Summary) -> None:
        self.seeds += other.seeds
        self.worlds += other.worlds
        self.figures += other.figures
        self.failures += other.failures
        self.violations += other.violations
        self.traces.update(other.traces)

    @property
    def trace(self) -> str:
        """The same whenever, wherever and in however many processes these seeds are run."""
        joined = "".join(self.traces[seed] for seed in sorted(self.traces))
        return hashlib.blake2b(joined.encode(), digest_size=8).hexdigest()


def run_seeds(seeds: Iterable[int], size: Size = WHOLE) -> Summary:
    """Garbage is collected by hand, now and then: worlds come and go, and little else."""
    summary = Summary()
    gc.disable()
    try:
        for seed in seeds:
            _run_one(seed, size, summary)
            if summary.seeds % _COLLECT_EVERY == 0:
                gc.collect()
    finally:
        gc.enable()
    return summary


def _run_one(seed: int, size: Size, summary: Summary) -> None:
    plan, traces = draw(seed, size), []
    for world in ("queue", "fetch") if seed % _FETCH_EVERY == 0 else ("queue",):
        result = simulate(plan, world)
        traces.append(result.trace)
        summary.worlds[world] += 1
        summary.figures += result.figures
        summary.violations.update(violation.rule for violation in result.violations)
        if result.violations:
            summary.failures.append((seed, world))
    summary.seeds += 1
    summary.traces[seed] = "".join(traces)


def run_many(
    seeds: range, jobs: int, told: Callable[[Summary], None], size: Size = WHOLE
) -> Summary:
    """``told`` hears of what is done so far."""
    summary = Summary()
    for part in _parts(seeds, jobs, partial(run_seeds, size=size)):
        summary.add(part)
        told(summary)
    return summary


def _parts(seeds: range, jobs: int, run: Callable[[range], Summary]) -> Iterator[Summary]:
    chunks = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
    if jobs == 1:
        yield from map(run, chunks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_settle_in) as pool:
        waiting: list[Future[Summary]] = [pool.submit(run, chunk) for chunk in chunks]
        for done in as_completed(waiting):
            yield done.result()


def _settle_in() -> None:
    gc.freeze()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose pool was killed would wait for its next task for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def find(ablation: Ablation, seeds: Iterable[int], size: Size = WHOLE) -> Result | None:
    """The first of these seeds that shows it, in the way in which it must show."""
    for seed in seeds:
        result = simulate(draw(seed, size), ablation.world, ablation)
        if ablation.is_shown_by(result.violations):
            return result
    return None


class Skewed(NamedTuple):
    """``worlds`` whose clocks were wrong, and the seeds of those that went another way by it."""

    worlds: int
    differing: list[int]


def skew_clocks(seeds: Iterable[int], hours: Sequence[float] = (1.0, -1.0)) -> Skewed:
    worlds, differing = 0, []
    for seed in seeds:
        traces = [simulate(skewed(draw(seed), h)).trace for h in hours]
        worlds += len(traces)
        if set(traces) != {simulate(straight(draw(seed))).trace}:
            differing.append(seed)
    return Skewed(worlds, differing)
