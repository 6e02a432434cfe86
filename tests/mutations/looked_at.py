"""Mutants that live on though they change something: kept by hand, each with why it may."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.verdicts import Mutant

FILE = Path(__file__).with_name("looked_at.toml")


@dataclass(frozen=True)
class LookedAt:
    """All mutants in functions like ``where`` of lines like ``was`` that are now like ``now``.

    A ``*`` stands for anything.
    """

    where: str
    why: str
    was: str = "*"
    now: str = "*"

    def covers(self, mutant: Mutant) -> bool:
        return is_like(mutant.change, (self.where, self.was, self.now))


def is_like(texts: Iterable[str], patterns: Iterable[str]) -> bool:
    """Not as a shell has it: brackets are common in code, and mean themselves."""
    wanted = (re.escape(pattern).replace(r"\*", ".*") for pattern in patterns)
    return all(
        re.fullmatch(pattern, text, re.DOTALL) for pattern, text in zip(wanted, texts, strict=True)
    )


def read(path: Path = FILE) -> list[LookedAt]:
    return [LookedAt(**one) for one in tomllib.loads(path.read_text()).get("survivor", [])]


def reason(mutant: Mutant, known: Iterable[LookedAt]) -> str | None:
    return next((one.why for one in known if one.covers(mutant)), None)


def stale(known: Iterable[LookedAt], mutants: Iterable[Mutant]) -> list[LookedAt]:
    """Entries of functions that were mutated now, and that no mutant fits any more."""
    tried = list(mutants)
    return [
        one
        for one in known
        if any(is_like([mutant.where], [one.where]) for mutant in tried)
        and not any(one.covers(mutant) for mutant in tried)
    ]
