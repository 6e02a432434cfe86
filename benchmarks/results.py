"""Figures on disk. A file keeps the last measurement of each workload, so that one can be repeated
without the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figures, Run, collect


@dataclass(frozen=True, slots=True)
class Result:
    """One workload, measured."""

    workload: str
    measured_at: str
    machine: Mapping[str, Any]
    versions: Mapping[str, Mapping[str, str]]
    """Of the peers, by environment."""
    rounds: int
    quick: bool
    runs: tuple[Run, ...]

    @property
    def figures(self) -> Figures:
        return collect(self.runs)

    @property
    def problems(self) -> dict[str, str]:
        """Who failed, how often, and why: the last reason."""
        found: dict[str, list[str]] = {}
        for run in self.runs:
            if run.problem:
                found.setdefault(run.contender, []).append(run.problem)
        return {name: f"{len(why)} of {self.rounds}: {why[-1]}" for name, why in found.items()}


def save(path: Path, result: Result) -> None:
    """What the file has of other workloads stays."""
    results = load(path) | {result.workload: result}
    known = {name: written(one) for name, one in results.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def written(result: Result) -> dict[str, Any]:
    """With the medians, for those who read the file without us."""
    medians = {
        key: {name: figure.median for name, figure in told.items()}
        for key, told in result.figures.items()
    }
    return {**asdict(result), "medians": medians}


def load(path: Path) -> dict[str, Result]:
    if not path.exists():
        return {}
    return {name: _read(found) for name, found in json.loads(path.read_text()).items()}


def _read(found: Mapping[str, Any]) -> Result:
    kept = {name: value for name, value in found.items() if name not in {"medians", "runs"}}
    return Result(runs=tuple(Run(**run) for run in found["runs"]), **kept)
