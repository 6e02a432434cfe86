"""What was measured, and what it means: medians, spread, ratios, targets. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.suite import Metric, Role, Target, Workload


@dataclass(frozen=True, slots=True)
class Run:
    """One contender, once: what it told, or why it told nothing."""

    contender: str
    round: int
    metrics: Mapping[str, float]
    problem: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric of one contender over all rounds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    @property
    def spread(self) -> float:
        """From the lowest to the highest, as a share of the median."""
        width = self.high - self.low
        return width / self.median if self.median else math.inf if width else 0.0


Figures = Mapping[str, Mapping[str, Figure]]
"""By metric as it was told (``lease_us@1000``), then by contender."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target, for one contender of ours."""

    metric: Metric
    target: Target
    contender: str
    value: float | None = None
    """Ours, divided by what it is measured by."""
    versus: str = ""
    """Who that is."""
    silent: bool = False
    """Our own contender told nothing."""

    @property
    def reached(self) -> bool | None:
        """None: nobody to measure it by, or not at this size."""
        if self.value is None:
            return None
        if self.metric.more_is_better:
            return self.value >= self.target.bound
        return self.value <= self.target.bound

    @property
    def missed(self) -> bool:
        """Also by silence: a failure of ours is no way to pass."""
        return self.reached is False or self.silent


def collect(runs: Iterable[Run]) -> Figures:
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        for key, value in run.metrics.items():
            found.setdefault(key, {}).setdefault(run.contender, []).append(value)
    return {
        key: {contender: Figure(tuple(values)) for contender, values in by_contender.items()}
        for key, by_contender in found.items()
    }


def quotient(value: float, by: float) -> float | None:
    """None where it says nothing: compared with 0, only 0 is the same."""
    if by == 0:
        return 1.0 if value == 0 else None
    return value / by


def key_of(metric: Metric, point: str = "") -> str:
    return f"{metric.key}@{point}" if point else metric.key


def points(metric: Metric, figures: Figures) -> list[str]:
    """The sizes at which a metric was told, smallest first; empty for a plain one."""
    found = [key.partition("@")[2] for key in figures if key.startswith(f"{metric.key}@")]
    return sorted(found, key=float)


def names(workload: Workload, role: Role) -> list[str]:
    return [contender.name for contender in workload.contenders if contender.role == role]


def best(metric: Metric, told: Mapping[str, Figure], among: Iterable[str]) -> str | None:
    """Who of these is first."""
    present = [name for name in among if name in told]
    if not present:
        return None
    choose = max if metric.more_is_better else min
    return choose(present, key=lambda name: told[name].median)


def judge(workload: Workload, figures: Figures) -> list[Verdict]:
    """All targets of a workload, each for every contender of ours that it is about."""
    return [
        verdict
        for metric in workload.metrics
        for target in metric.targets
        for verdict in _judge(workload, metric, target, figures)
    ]


def _judge(workload: Workload, metric: Metric, target: Target, figures: Figures) -> list[Verdict]:
    told = figures.get(key_of(metric, target.point), {})
    spoke = {name for by_contender in figures.values() for name in by_contender}
    return [
        _verdict(workload, metric, target, name, figures)
        if name in told
        else Verdict(metric, target, name, silent=not _tells(metric, name, figures))
        for name in names(workload, "ours")
        if (name in target.ours if target.ours else name in told or name not in spoke)
    ]


def _tells(metric: Metric, name: str, figures: Figures) -> bool:
    """Whether it spoke of other sizes: then a quick run has not asked for this one."""
    return any(name in figures[key_of(metric, size)] for size in points(metric, figures))


def _verdict(
    workload: Workload, metric: Metric, target: Target, name: str, figures: Figures
) -> Verdict:
    told = figures[key_of(metric, target.point)]
    value = told[name].median
    if target.against == "absolute":
        return Verdict(metric, target, name, value)
    if target.against == "itself":
        base = figures.get(key_of(metric, target.base), {}).get(name)
        ratio = quotient(value, base.median) if base else None
        return Verdict(metric, target, name, ratio)
    other = best(metric, told, target.versus or names(workload, _ROLES[target.against]))
    if other is None:
        return Verdict(metric, target, name)
    return Verdict(metric, target, name, quotient(value, told[other].median), other)


_ROLES: dict[str, Role] = {"peers": "peer", "limits": "limit"}
