"""The figures on disk. A source that is run again replaces what it said of the rows it was run
for; all else stays, with the date and the machine it was measured on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.evidence import Figure


@dataclass(frozen=True)
class Seen:
    """A figure, by which test, and how often it came out the same."""

    figure: Figure
    test: str = ""
    times: int = 1


@dataclass(frozen=True)
class Statement:
    """What one source said of one row."""

    measured: str
    """The key of the circumstances."""
    figures: tuple[Seen, ...] = ()
    tests: Mapping[str, int] = field(default_factory=dict)
    """How many cases of each test ran."""
    failures: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Tests that are about it and were not run, with their reasons."""


@dataclass(frozen=True)
class Output:
    """What a command of its own said on the screen, last."""

    measured: str
    command: str
    code: int | None
    seconds: float
    text: str


Statements = dict[str, dict[str, Statement]]


@dataclass
class Kept:
    """``rows`` by row and source; ``circumstances`` by the instant of a measurement."""

    circumstances: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: Statements = field(default_factory=dict)
    outputs: dict[str, Output] = field(default_factory=dict)


def counted(figures: Iterable[tuple[Figure, str]]) -> tuple[Seen, ...]:
    """The same figure of the cases of one test is kept once."""
    times = Counter(figures)
    return tuple(Seen(figure, test, number) for (figure, test), number in times.items())


def merge(kept: Kept, source: str, said: Mapping[str, Statement], rows: Collection[str]) -> None:
    """Let ``said`` take the place of all that ``source`` had said of ``rows``."""
    for row in rows:
        kept.rows.setdefault(row, {}).pop(source, None)
        if row in said:
            kept.rows[row][source] = said[row]
        if not kept.rows[row]:
            del kept.rows[row]


def save(path: Path, kept: Kept) -> None:
    named = {one.measured for said in kept.rows.values() for one in said.values()}
    named |= {output.measured for output in kept.outputs.values()}
    plain = {
        "circumstances": {
            key: facts for key, facts in sorted(kept.circumstances.items()) if key in named
        },
        "rows": {
            row: {source: _plain(one) for source, one in sorted(said.items())}
            for row, said in sorted(kept.rows.items())
        },
        "outputs": {name: asdict(output) for name, output in sorted(kept.outputs.items())},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    fresh.replace(path)


def _plain(said: Statement) -> dict[str, Any]:
    figures = [
        {**asdict(seen.figure), "test": seen.test, "times": seen.times} for seen in said.figures
    ]
    return {**asdict(said), "figures": figures}


def load(path: Path) -> Kept:
    if not path.exists():
        return Kept()
    plain = json.loads(path.read_text(encoding="utf-8"))
    return Kept(
        circumstances=plain["circumstances"],
        rows={
            row: {source: _statement(one) for source, one in said.items()}
            for row, said in plain["rows"].items()
        },
        outputs={name: Output(**output) for name, output in plain["outputs"].items()},
    )


def _statement(plain: Mapping[str, Any]) -> Statement:
    return Statement(
        measured=plain["measured"],
        figures=tuple(_seen(dict(one)) for one in plain["figures"]),
        tests=plain["tests"],
        failures=tuple(plain["failures"]),
        skipped=tuple(plain.get("skipped", ())),
    )


def _seen(plain: dict[str, Any]) -> Seen:
    test, times = plain.pop("test"), plain.pop("times")
    return Seen(Figure(**plain), test, times)
