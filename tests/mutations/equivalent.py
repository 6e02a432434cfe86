"""Mutants that change nothing anybody may rely on: kept by hand, each with its reason."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.verdicts import Mutant

FILE = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True)
class Equivalent:
    """All mutants of the lines ``was`` in ``where`` that make them one of ``now``.

    Where there is no ``where``, of any line in which ``was`` stands and becomes one of ``now``.
    """

    was: str
    now: tuple[str, ...]
    why: str
    where: str = ""

    def covers(self, mutant: Mutant) -> bool:
        if self.where:
            return (mutant.where, mutant.was) == (self.where, self.was) and mutant.now in self.now
        return any(mutant.now in _replaced(mutant.was, self.was, new) for new in self.now)


def _replaced(text: str, old: str, new: str) -> Iterator[str]:
    """``text`` with ``new`` in place of one ``old``, for each that it holds."""
    at = text.find(old)
    while at >= 0:
        yield text[:at] + new + text[at + len(old) :]
        at = text.find(old, at + 1)


def read(path: Path = FILE) -> list[Equivalent]:
    plain = tomllib.loads(path.read_text())
    return [Equivalent(**{**one, "now": tuple(one["now"])}) for one in plain.get("mutant", [])]


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
