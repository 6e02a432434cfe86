"""A mutant, what became of it, and the files of a run that say so."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

_MUTANTS, _TRIALS = "mutants.json", "trials.jsonl"


class Verdict(StrEnum):
    KILLED = "killed"
    TIMEOUT = "timeout"
    EQUIVALENT = "equivalent"
    SURVIVED = "survived"
    UNTESTED = "untested"
    UNTRIED = "untried"


DEAD = {Verdict.KILLED, Verdict.TIMEOUT}
ALIVE = {Verdict.SURVIVED, Verdict.UNTESTED}


@dataclass(frozen=True)
class Mutant:
    """``where`` is a function, ``was`` and ``now`` its changed lines: they outlive renumbering."""

    name: str
    where: str
    was: str
    now: str
    verdict: Verdict = Verdict.UNTRIED
    by: str = ""
    """The test that noticed."""

    @property
    def change(self) -> tuple[str, str, str]:
        return self.where, self.was, self.now

    @property
    def module(self) -> str:
        return self.name.rpartition(".")[0].partition(".")[2]

    @property
    def function(self) -> str:
        """As mutmut calls it, for all mutants of one function alike."""
        return self.name.rpartition("__mutmut_")[0]


def save(place: Path, mutants: Iterable[Mutant]) -> None:
    (place / _MUTANTS).write_text(json.dumps([asdict(mutant) for mutant in mutants]))
    (place / _TRIALS).write_text("")


def note(place: Path, mutant: Mutant) -> None:
    with (place / _TRIALS).open("a") as trials:
        trials.write(json.dumps([mutant.name, mutant.verdict, mutant.by]) + "\n")


def load(place: Path) -> list[Mutant]:
    """The mutants of a run, over or under way; none where it has made none yet."""
    try:
        plain = json.loads((place / _MUTANTS).read_text())
        ended = {name: (verdict, by) for name, verdict, by in _trials(place)}
    except (FileNotFoundError, json.JSONDecodeError):
        return []
    return [_ended(Mutant(**one), *ended.get(one["name"], (one["verdict"], ""))) for one in plain]


def _trials(place: Path) -> Iterator[Any]:
    """A last line that is just being written is left for later."""
    text = (place / _TRIALS).read_text()
    yield from (json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n"))


def _ended(mutant: Mutant, verdict: str, by: str) -> Mutant:
    return replace(mutant, verdict=Verdict(verdict), by=by)
