"""What mutmut found, read from the files it leaves: each mutant, its change, and how it ended."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from tests.mutations.plan import PACKAGE

_NUMBER = re.compile(r"__mutmut_\d+$")
_IN_CLASS = "ǁ"


class Verdict(Enum):
    KILLED = "killed"
    TIMEOUT = "timeout"
    SURVIVED = "survived"
    UNTESTED = "untested"
    UNTRIED = "untried"


# By the exit code of its process; any other is a crash of the tests, which is a kill too.
_BY_EXIT_CODE = {
    0: Verdict.SURVIVED,
    None: Verdict.UNTRIED,
    2: Verdict.UNTRIED,
    -15: Verdict.UNTRIED,
    5: Verdict.UNTESTED,
    33: Verdict.UNTESTED,
    36: Verdict.TIMEOUT,
    24: Verdict.TIMEOUT,
    -24: Verdict.TIMEOUT,
    152: Verdict.TIMEOUT,
    255: Verdict.TIMEOUT,
}


@dataclass(frozen=True)
class Mutant:
    """``where`` is a function, ``was`` and ``now`` its changed lines: they outlive renumbering."""

    name: str
    where: str
    verdict: Verdict
    was: str = field(repr=False, default="")
    now: str = field(repr=False, default="")

    @property
    def lives(self) -> bool:
        return self.verdict in {Verdict.SURVIVED, Verdict.UNTESTED}


def mutants_in(place: Path, modules: Iterable[str]) -> list[Mutant]:
    return [mutant for module in modules for mutant in _mutants_of(place, module)]


def _mutants_of(place: Path, module: str) -> Iterator[Mutant]:
    mutated = place / "mutants" / PACKAGE / f"{module.replace('.', '/')}.py"
    found = _read(mutated.with_name(mutated.name + ".meta")).get("exit_code_by_key", {})
    spans = _read(mutated.with_name(mutated.name + ".spans")).get("spans", {})
    lines = mutated.read_text().splitlines() if spans else []
    for name, exit_code in found.items():
        verdict = _BY_EXIT_CODE.get(exit_code, Verdict.KILLED)
        yield Mutant(name, where_is(name), verdict, *_change(name, spans, lines))


def _read(path: Path) -> dict[str, Any]:
    """Nothing where mutmut has not come to it yet, or is just writing it."""
    try:
        plain: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return plain


def where_is(name: str) -> str:
    """``…queue.step.xǁStepǁput__mutmut_3`` is in ``queue.step.Step.put``."""
    module, _, mangled = _NUMBER.sub("", name).rpartition(".")
    plain = mangled.removeprefix("x_")
    if mangled.startswith(f"x{_IN_CLASS}"):
        plain = mangled[2:].replace(_IN_CLASS, ".")
    return f"{module.removeprefix(PACKAGE + '.')}.{plain}"


def _change(name: str, spans: dict[str, tuple[int, int]], lines: list[str]) -> tuple[str, str]:
    own = name.rpartition(".")[2]
    original = _NUMBER.sub("__mutmut_orig", own)
    if own not in spans or original not in spans:
        return "", ""
    # The first lines hold the names that mutmut gave them.
    before, after = (
        [line.replace(key, "") for line in lines[spans[key][0] - 1 : spans[key][1]]]
        for key in (original, own)
    )
    difference = list(difflib.ndiff(before, after))
    return _lines(difference, "- "), _lines(difference, "+ ")


def _lines(difference: Iterable[str], sign: str) -> str:
    return "\n".join(line[2:].strip() for line in difference if line.startswith(sign))
