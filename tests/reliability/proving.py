"""Run a source, and turn what it said into statements about rows."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.evidence import LEFT_OUT, Figure, as_figures, load
from tests.reliability.circumstances import ROOT
from tests.reliability.commands import TESTS, Command
from tests.reliability.faults import CATALOGUE
from tests.reliability.kept import Kept, Output, Statement, counted, merge
from tests.reliability.progress import Teller
from tests.reliability.running import Ran, last_line, run
from tests.reliability.selecting import mentioned_by, mentioned_in

_PATIENCE = 3600.0
# Of a test that was collected and never heard of again.
UNFINISHED = "did not end"


@dataclass
class Case:
    """One test, with one set of parameters."""

    id: str
    outcome: str = UNFINISHED
    why: str = ""
    figures: list[Figure] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.id.partition("[")[0].rpartition("::")[2]

    @property
    def rows(self) -> set[str]:
        told = {figure.fault for figure in self.figures}
        if self.outcome != "passed":
            path = ROOT / self.id.partition("::")[0]
            return told | mentioned_by(path, self.name)
        return told


class Prover:
    """Adds to ``kept``, as measured at one instant."""

    def __init__(self, kept: Kept, measured: str, folder: Path, teller: Teller) -> None:
        self._kept = kept
        self._measured = measured
        self._folder = folder
        self._teller = teller

    # --- the tests ---

    def run_tests(self, files: Sequence[Path], rows: Collection[str], jobs: int) -> None:
        notes, log = self._folder / "notes.jsonl", self._folder / "pytest.log"
        ran = run(pytest_words(files, notes, jobs), _PATIENCE, log, lambda: self._tell_tests(notes))
        cases = read_cases(notes)
        said = statements(cases, self._measured)
        self._say_tests(ran, cases)
        if failure := failure_of_the_run(ran, cases):
            self._teller.say(f"{failure}:\n{ran.text}")
            said = broken(said, mentioned_in(files), failure, self._measured)
        merge(self._kept, TESTS, said, rows)

    def _tell_tests(self, notes: Path) -> None:
        count, ended, failed = progress_of(notes)
        self._teller.tell(f"tests: {ended} of {count or '?'}, {failed} failed")

    def _say_tests(self, ran: Ran, cases: Sequence[Case]) -> None:
        outcomes = Counter(case.outcome for case in cases)
        counts = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items())
        self._teller.say(f"tests: {counts or 'none'} in {ran.seconds:.0f} s")
        for case in cases:
            if case.outcome != "passed":
                self._teller.say(f"  {case.outcome}: {case.id}: {case.why}".removesuffix(": "))
            for figure in case.figures:
                if figure.fault not in CATALOGUE:
                    self._teller.say(f"  {case.id} shows {figure.fault}, which is no row")

    # --- commands of their own ---

    def run_command(self, command: Command, rows: Collection[str]) -> None:
        if not command.exists:
            self._teller.say(f"{command.name}: there is no {command.module}")
            return
        slug = command.name.replace(" ", "-")
        written, log = self._folder / f"{slug}.json", self._folder / f"{slug}.log"
        words = [sys.executable, "-m", command.module, *command.arguments, "--json", str(written)]
        ran = run(words, command.patience, log, lambda: self._tell_command(command, log))
        said = figures_of(command, ran, written, self._measured)
        self._kept.outputs[command.name] = Output(
            self._measured, command.words, ran.code, round(ran.seconds, 1), ran.text
        )
        merge(self._kept, command.name, said, rows)
        self._teller.say(f"{command.name}: {_end_of(ran)} after {ran.seconds:.0f} s")

    def _tell_command(self, command: Command, log: Path) -> None:
        self._teller.tell(f"{command.name}: {last_line(log)}")


def pytest_words(files: Iterable[Path], notes: Path, jobs: int) -> list[str]:
    plugins = ["-p", "tests.reliability.collecting", "-p", "no:cacheprovider"]
    how = ["-q", "--no-header", "--tb=short", "-n", str(jobs), "--figures", str(notes)]
    return [sys.executable, "-m", "pytest", *plugins, *how, *map(str, files)]


def read_notes(notes: Path) -> list[dict[str, Any]]:
    """A last line that is not whole yet is left for the next time."""
    text = notes.read_text(encoding="utf-8") if notes.exists() else ""
    return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]


def progress_of(notes: Path) -> tuple[int, int, int]:
    """How many tests there are, have ended, have failed."""
    lines = read_notes(notes)
    counts = [len(line["collected"]) for line in lines if "collected" in line]
    ended = [line for line in lines if "figures" in line]
    failed = {line["test"] for line in lines if line.get("outcome") == "failed"}
    return max(counts, default=0), len(ended), len(failed)


def read_cases(notes: Path) -> list[Case]:
    cases: dict[str, Case] = {}
    for line in read_notes(notes):
        for name in line.get("collected", ()):
            cases.setdefault(name, Case(name))
        if "test" in line:
            case = cases.setdefault(line["test"], Case(line["test"]))
            case.outcome = line["outcome"]
            case.why = case.why or line.get("why", "")
            case.figures += as_figures(line.get("figures", ()))
    return list(cases.values())


def statements(cases: Iterable[Case], measured: str) -> dict[str, Statement]:
    """By row: its figures, the tests they came from, and those that failed, were skipped or did
    not end."""
    about: dict[str, list[Case]] = {}
    for case in cases:
        for row in case.rows:
            about.setdefault(row, []).append(case)
    return {row: _statement(row, those, measured) for row, those in about.items()}


def _statement(row: str, cases: Sequence[Case], measured: str) -> Statement:
    figures = [(one, case.name) for case in cases for one in case.figures if one.fault == row]
    tests = Counter(case.name for case in cases if case.outcome in {"passed", "failed"})
    failed, skipped = _reasons(cases, "failed", UNFINISHED), _reasons(cases, "skipped")
    return Statement(measured, counted(figures), dict(sorted(tests.items())), failed, skipped)


def _reasons(cases: Iterable[Case], *outcomes: str) -> tuple[str, ...]:
    return tuple(
        f"{case.id}: {case.why or case.outcome}" for case in cases if case.outcome in outcomes
    )


def failure_of_the_run(ran: Ran, cases: Iterable[Case]) -> str | None:
    """Of pytest, where it ended in a way that no case accounts for: whatever a case said may then
    be a part only."""
    accounting = "failed" if ran.code == 1 else UNFINISHED
    if ran.code in {0, 5} or any(case.outcome == accounting for case in cases):
        return None
    return "pytest did not end in time" if ran.code is None else f"pytest ended with {ran.code}"


def broken(
    said: Mapping[str, Statement], rows: Iterable[str], why: str, measured: str
) -> dict[str, Statement]:
    """All of ``rows``, whatever was said of them."""
    known = {row: said.get(row, Statement(measured)) for row in rows}
    failed = {row: replace(one, failures=(*one.failures, why)) for row, one in known.items()}
    return {**said, **failed}


def figures_of(command: Command, ran: Ran, written: Path, measured: str) -> dict[str, Statement]:
    """If it did not end well, all rows that it is there for are broken, whatever it has written."""
    figures = load(written) if written.exists() else []
    said = {row: _told_of(row, figures, measured) for row in {one.fault for one in figures}}
    if ran.code == 0:
        return said
    own = {row for row, fault in CATALOGUE.items() if command.name in fault.by}
    return broken(said, own | set(said), f"{command.words}: {_end_of(ran)}", measured)


def _told_of(row: str, figures: Iterable[Figure], measured: str) -> Statement:
    about = [figure for figure in figures if figure.fault == row]
    shown = counted((one, "") for one in about if one.bound != LEFT_OUT)
    skipped = tuple(f"{one.value}" for one in about if one.bound == LEFT_OUT)
    return Statement(measured, shown, skipped=skipped)


def _end_of(ran: Ran) -> str:
    if ran.code is None:
        return "did not end in time"
    return {0: "held", 1: "a promise is broken"}.get(ran.code, f"ended with {ran.code}")
