"""Mutants that change nothing anybody may rely on: kept by hand, each with its reason."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.verdicts import Mutant

FILE = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True)
class Equivalent:
    """All mutants of the lines ``was`` in ``where`` that make them one of ``now``."""

    where: str
    was: str
    now: tuple[str, ...]
    why: str

    def covers(self, mutant: Mutant) -> bool:
        return (mutant.where, mutant.was) == (self.where, self.was) and mutant.now in self.now


def read(path: Path = FILE) -> list[Equivalent]:
    plain = tomllib.loads(path.read_text())
    return [
        Equivalent(one["where"], one["was"], tuple(one["now"]), one["why"])
        for one in plain.get("mutant", [])
    ]


def is_equivalent(mutant: Mutant, known: Iterable[Equivalent]) -> bool:
    return any(one.covers(mutant) for one in known)


def stale(known: Iterable[Equivalent], mutants: Iterable[Mutant]) -> list[Equivalent]:
    """Entries of functions that were mutated now, and that no mutant fits any more."""
    tried = list(mutants)
    places = {mutant.where for mutant in tried}
    return [
        one
        for one in known
        if one.where in places and not any(one.covers(mutant) for mutant in tried)
    ]
