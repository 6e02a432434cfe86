"""Mutants of a module, by mutmut: one file with all of them, each function a switch among its own.

Which one is active is said at run time, so a process is forked for each and nothing is imported
again.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mutmut.mutation.file_mutation import mutate_file_contents

from tests.mutations.plan import PACKAGE, path_of
from tests.mutations.verdicts import Mutant

_NUMBER = re.compile(r"__mutmut_\d+$")
_IN_CLASS = "ǁ"


def mutate(place: Path, modules: Iterable[str]) -> list[Mutant]:
    return [mutant for module in modules for mutant in _mutate(place, module)]


def _mutate(place: Path, module: str) -> list[Mutant]:
    path = place / path_of(module)
    mutated = mutate_file_contents(str(path), path.read_text())
    path.write_text(mutated.code)
    lines = mutated.code.splitlines()
    return [
        Mutant(
            f"{PACKAGE}.{module}.{name}",
            f"{module}.{plain_name(name)}",
            *_change(name, mutated.line_span_by_function_name, lines),
        )
        for name in mutated.mutant_names
    ]


def plain_name(mangled: str) -> str:
    """``xǁStepǁput__mutmut_3`` is a ``Step.put``, ``x_put__mutmut_3`` a ``put``."""
    name = _NUMBER.sub("", mangled)
    return name[2:].replace(_IN_CLASS, ".") if _IN_CLASS in name else name.removeprefix("x_")


def _change(name: str, spans: Mapping[str, Any], lines: list[str]) -> tuple[str, str]:
    # The first line holds the name that mutmut gave it.
    before, after = (
        [line.replace(key, "") for line in lines[spans[key].start - 1 : spans[key].end]]
        for key in (_NUMBER.sub("__mutmut_orig", name), name)
    )
    difference = list(difflib.ndiff(before, after))
    return _lines(difference, "- "), _lines(difference, "+ ")


def _lines(difference: Iterable[str], sign: str) -> str:
    return "\n".join(line[2:].strip() for line in difference if line.startswith(sign))
