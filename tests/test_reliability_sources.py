"""Where the figures come from: tests and commands, run, read and told apart."""

from __future__ import annotations

import ast
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.evidence import Evidence, Figure
from tests.reliability.collecting import Notes
from tests.reliability.commands import COMMANDS, TIERS, Command, chosen
from tests.reliability.faults import CATALOGUE
from tests.reliability.judging import Verdict, verdict
from tests.reliability.kept import Seen, Statement
from tests.reliability.proving import Case, figures_of, read_cases, statements
from tests.reliability.running import Ran, last_line, run, tail
from tests.reliability.selecting import TESTS_FOLDER, files_about, mentioned_by, shown

MONDAY = "2026-11-16T10:00:00+00:00"
LOST = Figure("F1", "lost", 0, "= 0")


# --- the tests as a source -----------------------------------------------------------------------

SAMPLE = """
import pytest

@pytest.mark.parametrize("n", [0, 0, 2])
def test_good(shows, n):
    shows("F1", "lost", 0, exactly=0)
    shows("F2", "n", n, at_most=2)

def test_broken(shows):
    shows("F8", "lost", 1, exactly=0)

def test_fails_before_it_shows(shows):
    raise ZeroDivisionError("early")
    shows("F9", "lost", 0, exactly=0)

def test_not_asked_for():
    raise AssertionError
"""
CONFTEST = "from tests.conftest import shows\n__all__ = ['shows']\n"


@pytest.mark.parametrize("jobs", ["0", "2"])
def test_figures_and_failures_are_collected(tmp_path: Path, jobs: str) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    notes = tmp_path / "notes.jsonl"
    plugins = ["-p", "tests.reliability.collecting", "-p", "no:cacheprovider"]
    how = ["--rootdir", str(tmp_path), "-n", jobs, "--figures", str(notes), str(tmp_path)]
    words = [sys.executable, "-m", "pytest", "-q", *plugins, *how]
    ran = run(words, 60.0, tmp_path / "log", lambda: None)
    assert ran.code == 1, ran.text
    cases = {case.id.partition("::")[2]: case for case in read_cases(notes)}
    assert {case.outcome for name, case in cases.items() if "good" in name} == {"passed"}
    assert "test_not_asked_for" not in cases
    broken = cases["test_broken"]
    assert (broken.outcome, [one.value for one in broken.figures]) == ("failed", [1])
    assert "ZeroDivisionError: early" in cases["test_fails_before_it_shows"].why
    assert len(cases) == 5


def test_cases_become_statements_about_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    monkeypatch.setattr("tests.reliability.proving.ROOT", tmp_path)
    good = [Case(f"test_sample.py::test_good[{n}]", "passed", figures=[LOST]) for n in range(3)]
    early = Case("test_sample.py::test_fails_before_it_shows", "failed", "early")
    said = statements([*good, early], MONDAY)
    assert said["F1"] == Statement(MONDAY, (Seen(LOST, "test_good", 3),), {"test_good": 3})
    assert said["F9"].failures == ("test_sample.py::test_fails_before_it_shows: early",)
    assert set(said) == {"F1", "F9"}


def test_a_skipped_case_is_told_of_the_rows_it_would_have_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    monkeypatch.setattr("tests.reliability.proving.ROOT", tmp_path)
    skipped = Case("test_sample.py::test_broken", "skipped", "no strace")
    reason = "test_sample.py::test_broken: no strace"
    assert statements([skipped], MONDAY) == {"F8": Statement(MONDAY, skipped=(reason,))}


def test_the_files_about_a_row_are_found(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    (tmp_path / "test_other.py").write_text("def test_x():\n    assert 'F1'\n")
    assert files_about(["F1"], tmp_path) == [tmp_path / "test_sample.py"]
    assert files_about(["F68"], tmp_path) == []
    assert mentioned_by(tmp_path / "test_sample.py", "test_broken") == {"F8"}
    assert mentioned_by(tmp_path / "test_sample.py", "test_of_others") == {"F1", "F2", "F8", "F9"}


def test_every_row_that_is_shown_is_in_the_catalogue() -> None:
    trees = {path.name: ast.parse(path.read_text()) for path in TESTS_FOLDER.rglob("*.py")}
    unknown = {name: set(shown(tree)) - set(CATALOGUE) for name, tree in trees.items()}
    assert not {name: rows for name, rows in unknown.items() if rows}


def test_an_unknown_row_is_found() -> None:
    calls = "shows('F99', 'x', 0, exactly=0); self._shows('F98', 'x'); shows(row); show('F97')"
    assert sorted(shown(ast.parse(calls))) == ["F98", "F99"]


def test_a_line_is_written_for_each_test(tmp_path: Path) -> None:
    report = pytest.TestReport(
        "test_x.py::test_x", ("test_x.py", 1, "test_x"), {}, "passed", None, "teardown",
        user_properties=[("figures", [asdict(LOST)]), ("other", 1)],
    )  # fmt: skip
    Notes(tmp_path / "notes").pytest_runtest_logreport(report)
    (case,) = read_cases(tmp_path / "notes")
    assert case == Case("test_x.py::test_x", "passed", "", [LOST])


def _is_test(node: ast.AST) -> bool:
    function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return function and getattr(node, "name", "").startswith("test_")


def _may_be_missed(tree: ast.Module) -> bool:
    """Whether a test of it is skipped, or is there under a condition only."""
    words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    conditions = [node for node in tree.body if isinstance(node, ast.If)]
    nested = any(_is_test(node) for condition in conditions for node in ast.walk(condition))
    return nested or bool(words & {"skip", "skipif", "importorskip", "xfail"})


def test_no_test_of_a_row_goes_missing_where_something_is_not_installed() -> None:
    """Only by way of tests/demands.py, which says how to get what is missing."""
    files = files_about(CATALOGUE)
    missed = [path.name for path in files if _may_be_missed(ast.parse(path.read_text()))]
    assert (missed, bool(files)) == ([], True)


@pytest.mark.parametrize(
    ("source", "missed"),
    [
        ("def test_x(shows): pass", False),
        ("def test_x(shows): pytest.skip('no strace')", True),
        ("@pytest.mark.skipif(True)\ndef test_x(shows): pass", True),
        ("if strace:\n    async def test_x(shows): pass", True),
    ],
)
def test_a_test_that_may_be_missed_is_found(source: str, missed: bool) -> None:
    assert _may_be_missed(ast.parse(source)) is missed


# --- commands as sources -------------------------------------------------------------------------

POWER = COMMANDS["power"]


@pytest.mark.parametrize("code", [0, 1, 2, None])
def test_a_command_that_does_not_end_well_breaks_its_rows(tmp_path: Path, code: int | None) -> None:
    cuts, written = Figure("F44", "lost", 0, "= 0"), tmp_path / "power.json"
    evidence = Evidence()
    evidence.figures = [cuts]
    evidence.save(written)
    said = figures_of(POWER, Ran(code, 1.0, ""), written, MONDAY)
    assert verdict(CATALOGUE["F44"], {"power": said["F44"]}) is Verdict.HELD
    broken = "F45" in said and verdict(CATALOGUE["F45"], {"power": said["F45"]}) is Verdict.BROKEN
    assert broken is (code != 0)


def test_a_command_that_wrote_nothing_says_nothing(tmp_path: Path) -> None:
    assert figures_of(POWER, Ran(0, 1.0, ""), tmp_path / "nothing.json", MONDAY) == {}


def test_the_tiers_grow() -> None:
    sizes = [len(chosen(tier, CATALOGUE)) for tier in TIERS]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == len(COMMANDS)
    assert chosen("quick", ["F45"]) == []
    assert chosen("full", ["F45", "F1"]) == [POWER]
    assert {name for fault in CATALOGUE.values() for name in fault.by} == set(COMMANDS)
    assert not Command("none", "quick", 1.0, "tests.nowhere").exists


def test_what_runs_too_long_is_ended(tmp_path: Path) -> None:
    program = "import time\nprint('begun\\rgoes on', flush=True)\ntime.sleep(60)"
    glances: list[None] = []
    ran = run([sys.executable, "-c", program], 2.0, tmp_path / "log", lambda: glances.append(None))
    assert ran.code is None
    assert ran.text.startswith("goes on")
    assert glances


def test_of_what_was_said_progress_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("seeds: 1 of 9\nseeds: 5 of 9\r\x1b[Kseeds: 9 of 9\n\nlost: 0\ntwice: 0\n\n")
    assert tail(log) == "seeds: 9 of 9\n\nlost: 0\ntwice: 0"


def test_a_command_that_has_said_nothing_yet(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("")
    assert (tail(log), last_line(log)) == ("", "")
