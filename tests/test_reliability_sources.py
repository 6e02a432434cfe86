"""Where the figures come from: tests and commands, run, read and told apart."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from io import StringIO
from pathlib import Path

import pytest

from tests.evidence import Evidence, Figure
from tests.reliability.collecting import Notes
from tests.reliability.commands import COMMANDS, TESTS, TIERS, Command, chosen
from tests.reliability.faults import CATALOGUE
from tests.reliability.judging import Verdict, verdict
from tests.reliability.kept import Kept, Seen, Statement, Statements, load
from tests.reliability.progress import Teller
from tests.reliability.proving import (
    UNFINISHED,
    Case,
    Prover,
    failure_of_the_run,
    figures_of,
    progress_of,
    read_cases,
    statements,
)
from tests.reliability.running import Ran, last_line, run
from tests.reliability.selecting import (
    TESTS_FOLDER,
    files_about,
    is_test,
    mentioned_by,
    showing_tests,
    shown,
)

FIGURES = TESTS_FOLDER.parent / "docs" / "reliability" / "figures.json"
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


def _collected(
    folder: Path, notes: Path, sample: str, jobs: str, until: Callable[[], bool] = lambda: False
) -> Ran:
    (folder / "test_sample.py").write_text(sample)
    (folder / "conftest.py").write_text(CONFTEST)
    plugins = ["-p", "tests.reliability.collecting", "-p", "no:cacheprovider"]
    how = ["--rootdir", str(folder), "-n", jobs, "--figures", str(notes), str(folder)]

    def glance() -> None:
        if until():
            raise KeyboardInterrupt

    words = [sys.executable, "-m", "pytest", "-q", *plugins, *how]
    try:
        return run(words, 60.0, folder / "log", glance)
    except KeyboardInterrupt:
        return Ran(None, 0.0, "")


@pytest.mark.parametrize("jobs", ["0", "2"])
def test_figures_and_failures_are_collected(tmp_path: Path, jobs: str) -> None:
    notes = tmp_path / "notes.jsonl"
    ran = _collected(tmp_path, notes, SAMPLE, jobs)
    assert ran.code == 1, ran.text
    cases = {case.id.partition("::")[2]: case for case in read_cases(notes)}
    assert {case.outcome for name, case in cases.items() if "good" in name} == {"passed"}
    assert "test_not_asked_for" not in cases
    broken = cases["test_broken"]
    assert (broken.outcome, [one.value for one in broken.figures]) == ("failed", [1])
    assert "ZeroDivisionError: early" in cases["test_fails_before_it_shows"].why
    assert len(cases) == 5


CUT_SHORT = """
import time

def test_good(shows):
    shows("F1", "lost", 0, exactly=0)

def test_endless(shows):
    shows("F1", "lost", 0, exactly=0)
    shows("F8", "lost", 0, exactly=0)
    time.sleep(60)

def test_after_it(shows):
    shows("F9", "lost", 0, exactly=0)
"""


def test_what_was_collected_and_did_not_end_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.reliability.proving.ROOT", tmp_path)
    notes = tmp_path / "notes.jsonl"
    ran = _collected(tmp_path, notes, CUT_SHORT, "0", lambda: progress_of(notes)[1] == 1)
    said = statements(read_cases(notes), MONDAY)
    assert (ran.code, progress_of(notes)) == (None, (3, 1, 0))
    endless = "test_sample.py::test_endless: did not end"
    assert (said["F1"].failures, said["F8"].failures) == ((endless,), (endless,))
    assert said["F9"].failures == ("test_sample.py::test_after_it: did not end",)
    assert (said["F1"].tests, said["F9"].tests) == ({"test_good": 1}, {})


@pytest.mark.parametrize(
    ("code", "outcomes", "told"),
    [
        (0, ["passed"], None),
        (5, [], None),
        (1, ["passed", "failed"], None),
        (1, ["passed"], "pytest ended with 1"),
        (None, ["passed", UNFINISHED], None),
        (None, ["passed", "failed"], "pytest did not end in time"),
        (3, ["passed"], "pytest ended with 3"),
        (2, ["failed"], "pytest ended with 2"),
        (4, [], "pytest ended with 4"),
    ],
)
def test_an_end_that_no_case_accounts_for_is_a_failure_of_the_run(
    code: int | None, outcomes: list[str], told: str | None
) -> None:
    cases = [Case(f"test_x.py::test_{outcome}", outcome) for outcome in outcomes]
    assert failure_of_the_run(Ran(code, 1.0, ""), cases) == told


def test_a_run_that_failed_breaks_all_it_was_about(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept, screen = Kept(), StringIO()
    monkeypatch.setattr("tests.reliability.proving.run", lambda *_: Ran(3, 1.0, "INTERNALERROR"))
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    prover = Prover(kept, MONDAY, tmp_path, Teller(screen))
    prover.run_tests([tmp_path / "test_sample.py"], ["F1", "F2", "F45"], 1)
    broken = Statement(MONDAY, failures=("pytest ended with 3",))
    assert kept.rows == {"F1": {"tests": broken}, "F2": {"tests": broken}}
    assert "pytest ended with 3:\nINTERNALERROR" in screen.getvalue()


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


def _may_be_missed(tree: ast.Module) -> bool:
    """Whether a test of it is skipped, or is there under a condition only."""
    words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    conditions = [node for node in tree.body if isinstance(node, ast.If)]
    nested = any(is_test(node) for condition in conditions for node in ast.walk(condition))
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


def _names(said: Statements) -> dict[str, set[str]]:
    """The tests that each row rests on."""
    rested_on = {row: sources.get(TESTS, Statement(MONDAY)) for row, sources in said.items()}
    return {row: {*one.tests, *(x.test for x in one.figures)} for row, one in rested_on.items()}


def _gone(said: Statements, there: Mapping[str, set[str]]) -> dict[str, set[str]]:
    gone = {row: names - there.keys() for row, names in _names(said).items()}
    return {row: names for row, names in gone.items() if names}


def _never_run(said: Statements, there: Mapping[str, set[str]]) -> dict[str, set[str]]:
    names = _names(said)
    return {
        row: missing
        for row in set().union(*there.values())
        if (missing := {name for name in there if row in there[name]} - names.get(row, set()))
    }


def test_no_test_that_a_row_rests_on_is_gone() -> None:
    """Its figures would stay, and the row would pass for one that holds. Where a test has another
    name now, run its row again."""
    assert _gone(load(FIGURES).rows, showing_tests()) == {}


def test_every_test_that_names_a_row_was_run_for_it() -> None:
    """A row that says less than its tests do wants to be run again."""
    assert _never_run(load(FIGURES).rows, showing_tests()) == {}


def test_tests_that_are_gone_or_were_never_run_are_found(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    there, figure = showing_tests(tmp_path), Seen(LOST, "test_no_memory_left")
    assert there == {
        "test_good": {"F1", "F2"},
        "test_broken": {"F8"},
        "test_fails_before_it_shows": {"F9"},
    }
    told = {"F9": "test_fails_before_it_shows", "F1": "test_good", "F2": "test_good"}
    said = {row: {TESTS: Statement(MONDAY, (), {name: 1})} for row, name in told.items()}
    said["F48"] = {TESTS: Statement(MONDAY, (figure,), {"test_no_memory_left": 1})}
    assert _gone(said, there) == {"F48": {"test_no_memory_left"}}
    assert _never_run(said, there) == {"F8": {"test_broken"}}


# --- commands as sources -------------------------------------------------------------------------

POWER = COMMANDS["power"]


@pytest.mark.parametrize("code", [0, 1, 2, None])
def test_a_command_that_does_not_end_well_breaks_its_rows(tmp_path: Path, code: int | None) -> None:
    """Those that it is to show, and those that it has shown besides."""
    evidence, written = Evidence(), tmp_path / "power.json"
    evidence("F5", "lost", 0, exactly=0)
    evidence.save(written)
    said = figures_of(POWER, Ran(code, 1.0, ""), written, MONDAY)
    assert ("F45" in said) is (code != 0)
    ends = {verdict(CATALOGUE[row], {"power": one}) for row, one in said.items()}
    assert ends == {Verdict.HELD if code == 0 else Verdict.BROKEN}


def test_a_command_that_wrote_nothing_says_nothing(tmp_path: Path) -> None:
    assert figures_of(POWER, Ran(0, 1.0, ""), tmp_path / "nothing.json", MONDAY) == {}


def test_what_a_command_leaves_out_has_not_held(tmp_path: Path) -> None:
    evidence, written = Evidence(), tmp_path / "figures.json"
    evidence("F43", "refused", 0, exactly=0)
    evidence.leaves_out("F43", "nothing may be mounted here")
    evidence.save(written)
    (said,) = figures_of(POWER, Ran(0, 1.0, ""), written, MONDAY).values()
    assert [seen.figure.what for seen in said.figures] == ["refused"]
    assert said.skipped == ("nothing may be mounted here",)


def test_every_command_that_has_shown_a_row_is_to_show_it() -> None:
    """Otherwise the row would pass for whole without it, and nobody would run it for that row."""
    kept = load(FIGURES)
    unnamed = {row: set(said) - {TESTS, *CATALOGUE[row].by} for row, said in kept.rows.items()}
    assert not {row: sorted(names) for row, names in unnamed.items() if names}


def test_the_tiers_grow() -> None:
    sizes = [len(chosen(tier, CATALOGUE)) for tier in TIERS]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == len(COMMANDS)
    assert chosen("quick", ["F45"]) == []
    assert chosen("full", ["F45", "F5"]) == [POWER]
    assert {name for fault in CATALOGUE.values() for name in fault.by} == set(COMMANDS)
    assert not Command("none", "quick", 1.0, "tests.nowhere").exists


def test_what_runs_too_long_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    program = "import time\nprint('begun\\rgoes on')\ntime.sleep(60)"
    glances: list[str] = []
    log = tmp_path / "log"
    ran = run([sys.executable, "-c", program], 2.0, log, lambda: glances.append(last_line(log)))
    assert ran.code is None
    assert ran.text.startswith("goes on\n")
    assert glances[-1] == "goes on", "it is seen as soon as it is said"


IN_THE_BACKGROUND = """
import signal, sys
from pathlib import Path
from tests.reliability.running import be_interruptible, run

signal.signal(signal.SIGINT, signal.SIG_IGN)
be_interruptible()
program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
print(run([sys.executable, "-c", program], 30.0, Path(sys.argv[1]), lambda: None).text)
"""


def test_what_is_started_in_the_background_can_be_ended(tmp_path: Path) -> None:
    """A shell lets what it starts there ignore Ctrl-C; what that starts must not."""
    said = subprocess.run(
        [sys.executable, "-c", IN_THE_BACKGROUND, str(tmp_path / "log")],
        cwd=TESTS_FOLDER.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stdout == "False\n"


TALKING = """
import sys
for number in range(300):
    print(f"F45  lost: {number}")
    print(f"{number} of 300", file=sys.stderr)
print("146 times: a", "146 times: a", "seeds: 1\\r\\x1b[Kseeds: 9", "", sep="\\n")
"""


def _talked(tmp_path: Path, program: str) -> Ran:
    return run([sys.executable, "-c", program], 30.0, tmp_path / "log", lambda: None)


def test_results_are_kept_whole_and_progress_is_not(tmp_path: Path) -> None:
    ran = _talked(tmp_path, TALKING)
    results = [f"F45  lost: {number}" for number in range(300)]
    assert ran.code == 0
    assert ran.text.split("\n") == [*results, "146 times: a", "146 times: a", "seeds: 9"]
    assert last_line(tmp_path / "log") == "299 of 300"


def test_what_did_not_end_well_says_why(tmp_path: Path) -> None:
    ran = _talked(tmp_path, TALKING + "raise RuntimeError('why')")
    assert ran.code == 1
    assert "\nseeds: 9\n\nand at last, beside it:\n" in ran.text
    assert ran.text.endswith("RuntimeError: why")
    assert "299 of 300" in ran.text
    assert "1 of 300\n2 of 300" not in ran.text


def test_a_command_that_has_said_nothing_yet(tmp_path: Path) -> None:
    assert last_line(tmp_path / "log") == ""
    assert _talked(tmp_path, "").text == ""
    assert last_line(tmp_path / "log") == ""
