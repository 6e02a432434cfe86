"""Where the figures of a page come from: by which source, when, of which state of the package."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.reliability.circumstances import PACKAGE
from tests.reliability.commands import COMMANDS, TESTS
from tests.reliability.kept import Kept, Statement

_WRITTEN = "This page was written at package `{}`"
_NO_STATE = "unknown"
_STATES = """ (`git rev-parse
HEAD:data_fetcher_core`). A + marks changes that no commit holds, so that the state is not known."""


def written_at(page: str) -> str:
    """Of which state of the package a page says that it is."""
    found = re.search(_WRITTEN.format("(.+?)"), page)
    return found[1] if found else _NO_STATE


def all_of(package: str, said: Mapping[str, Statement], kept: Kept) -> bool:
    """Whether nothing of it was measured at another state of the package."""
    return all(_is(package, kept.circumstances.get(one.measured, {})) for one in said.values())


def _is(package: str, facts: Mapping[str, Any]) -> bool:
    return _is_certain(package) and facts.get(PACKAGE) == package


def _is_certain(package: str) -> bool:
    return package != _NO_STATE and not package.endswith("+")


def origins(kept: Kept, package: str) -> Iterator[str]:
    """A table of the sources, and the machines."""
    yield _WRITTEN.format(package) + _STATES
    yield "\n".join(
        ["| source | measured | package | rows |", "|---|---|---|---|", *_table(kept, package)]
    )
    yield "\n".join(_machines(kept))


def _table(kept: Kept, package: str) -> Iterator[str]:
    rows = Counter(
        (source, one.measured) for said in kept.rows.values() for source, one in said.items()
    )
    for source in (TESTS, *COMMANDS):
        for instant in sorted((at for name, at in rows if name == source), reverse=True):
            state = _state(kept.circumstances.get(instant, {}), package)
            yield f"| {source} | {_minute(instant)} | {state} | {rows[source, instant]} |"


def _state(facts: Mapping[str, Any], package: str) -> str:
    if PACKAGE not in facts:
        return f"**not noted**, commit `{facts.get('commit', _NO_STATE)}`"
    noted = facts[PACKAGE]
    if not (_is_certain(noted) and _is_certain(package)):
        return f"`{noted}`, **not certain**"
    return f"`{noted}`, {'this one' if noted == package else '**another**'}"


def _machines(kept: Kept) -> Iterator[str]:
    instants: dict[str, list[str]] = {}
    for instant, facts in sorted(kept.circumstances.items(), reverse=True):
        instants.setdefault(", ".join(_machine(facts)), []).append(_minute(instant))
    for machine, those in instants.items():
        yield f"- {', '.join(those)}: {machine}"


def _machine(facts: Mapping[str, Any]) -> Iterator[str]:
    for name, value in facts.items():
        shown = " and ".join(map(str, value)) if isinstance(value, list) else value
        if name not in {"tier", "commit", PACKAGE}:
            yield f"{name} {shown}"


def _minute(instant: str) -> str:
    return instant[:16].replace("T", " ")
