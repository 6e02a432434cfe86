"""The page of proofs: made from figures, merged row by row, and hiding nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.evidence import Evidence, Figure
from tests.reliability.__main__ import FIGURES, main
from tests.reliability.circumstances import package
from tests.reliability.faults import CATALOGUE, Fault
from tests.reliability.judging import Line, Verdict, holds, lines, verdict
from tests.reliability.kept import Kept, Output, Seen, Statement, load, merge, save
from tests.reliability.origins import written_at
from tests.reliability.rendering import line_words, markdown
from tests.reliability.selecting import TESTS_FOLDER

MONDAY, TUESDAY = "2026-11-16T10:00:00+00:00", "2026-11-17T10:00:00+00:00"
LOST = Figure("F1", "lost", 0, "= 0")
HERE = "6c88f33db0"
REPEATED = Figure("F1", "repeated", 7, "told")


def _said(*figures: Figure, measured: str = MONDAY, failures: tuple[str, ...] = ()) -> Statement:
    return Statement(measured, tuple(Seen(one, "test_it") for one in figures), {}, failures)


def _kept(**rows: Statement) -> Kept:
    facts = {
        MONDAY: {"commit": "c0ffee", "Python": "3.11.2"},
        TUESDAY: {"package": HERE, "Python": "3.12.1"},
    }
    return Kept(facts, {row: {"tests": said} for row, said in rows.items()})


# --- a row ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "bound", "held"),
    [
        (0, "= 0", True),
        (0, "= 0.0", True),
        (1, "= 0", False),
        ("a", "= a", True),
        ("a", "= b", False),
        (3, "≤ 3", True),
        (3.1, "≤ 3", False),
        (3, "≥ 3", True),
        (2, "≥ 3", False),
        ("many", "≤ 3", False),
        (-1, "told", True),
        ("many", "told", True),
    ],
)
def test_a_kept_figure_is_held_to_its_bound(value: float | str, bound: str, held: bool) -> None:
    assert holds(Figure("F1", "x", value, bound)) is held


def test_what_evidence_has_let_pass_holds_here_too(tmp_path: Path) -> None:
    shows = Evidence()
    shows("F1", "lost", 0, exactly=0)
    shows("F1", "hash", "abc", exactly="abc")
    shows("F1", "seconds", 0.1 + 0.2, at_most=0.5)
    with pytest.raises(AssertionError):
        shows("F1", "repeated", 7, at_most=3)
    assert [holds(figure) for figure in shows.figures] == [True, True, True, False]


def test_the_verdict_of_a_row() -> None:
    fault = Fault("F1", "a fault", "done", "must hold")
    assert verdict(fault, {}) is Verdict.SILENT
    assert verdict(fault, {"tests": _said()}) is Verdict.SILENT
    assert verdict(fault, {"tests": _said(LOST)}) is Verdict.HELD
    assert verdict(fault, {"tests": _said(REPEATED)}) is Verdict.SILENT, "nothing was judged"
    assert verdict(fault, {"tests": _said(LOST, REPEATED)}) is Verdict.HELD
    assert verdict(fault, {"tests": _said(LOST, replace(LOST, value=1))}) is Verdict.BROKEN
    assert verdict(fault, {"tests": _said(LOST, failures=("test_x: no",))}) is Verdict.BROKEN
    broken = {"tests": _said(LOST), "power": _said(failures=("no",))}
    assert verdict(fault, broken) is Verdict.BROKEN


@pytest.mark.parametrize("row", [row for row, fault in CATALOGUE.items() if fault.by])
def test_a_row_has_held_in_part_until_every_command_that_is_to_show_it_has(row: str) -> None:
    fault, said = CATALOGUE[row], {"tests": _said(LOST)}
    for name in fault.by:
        assert verdict(fault, said) is Verdict.PARTLY
        said[name] = _said(LOST)
    assert verdict(fault, said) is Verdict.HELD


def test_a_row_of_which_a_test_was_skipped_has_held_in_part() -> None:
    skipped = replace(_said(LOST), skipped=("test_x: nothing may be mounted",))
    fault = Fault("F1", "a fault", "done", "must hold")
    assert verdict(fault, {"tests": skipped}) is Verdict.PARTLY
    assert verdict(fault, {"tests": replace(skipped, figures=())}) is Verdict.SILENT


def test_of_many_figures_the_one_nearest_to_its_bound_is_told() -> None:
    repeated = [Figure("F1", "repeated", *pair) for pair in ((3, "≤ 40"), (5, "≤ 8"), (9, "≤ 100"))]
    seen = [Seen(repeated[0]), Seen(repeated[1], times=3), Seen(repeated[2]), Seen(LOST)]
    assert lines(seen) == [Line(repeated[1], 5), Line(LOST, 1)]
    assert lines([Seen(replace(repeated[0], value=0, bound="≤ 0")), *seen])[0].worst == repeated[1]
    broken = replace(repeated[0], value=41)
    assert lines([*seen, Seen(broken)])[0] == Line(broken, 6)


def test_of_what_was_done_the_most_is_told_and_of_what_was_reached_the_least() -> None:
    kills = [Figure("F1", "kills", *pair) for pair in ((7, "≥ 5"), (19, "≥ 19"), (30, "≥ 1"))]
    shares = [Figure("F49", "share", value, "≥ 0.95") for value in (0.99, 0.96, 0.97)]
    told = [line.worst.value for line in lines(map(Seen, [*kills, *shares]))]
    assert told == [19, 0.96]


def test_of_what_is_only_told_the_most_is_told() -> None:
    seen = [Seen(replace(REPEATED, value=value)) for value in (3, 9, 0)]
    assert lines(seen) == [Line(replace(REPEATED, value=9), 3)]


@pytest.mark.parametrize(
    ("figure", "times", "words"),
    [
        (LOST, 1, "lost **0** (= 0)"),
        (LOST, 1234, "lost **0** (= 0, 1,234 ×)"),
        (Figure("F1", "took", 0.123456, "≤ 1.5", "s"), 1, "took **0.123** s (≤ 1.5)"),
        (Figure("F1", "cuts", 10_000, "≥ 10000"), 1, "cuts **10,000** (≥ 10,000)"),
        (Figure("F1", "hash", "ab", "= ab"), 1, "hash **ab** (= ab)"),
        (Figure("F1", "repeated", 7, "≥ 0"), 1, "repeated **7** (≥ 0)"),
        (REPEATED, 1, "repeated **7** (told)"),
        (REPEATED, 2, "repeated **7** (told, 2 ×)"),
    ],
)
def test_a_figure_in_words(figure: Figure, times: int, words: str) -> None:
    assert line_words(Line(figure, times)) == words


# --- the page ------------------------------------------------------------------------------------


def _line_of(row: str, page: str) -> str:
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {row} |")]
    return line


def test_every_row_is_on_the_page_whatever_is_known_of_it(tmp_path: Path) -> None:
    page = markdown(
        _kept(
            F5=_said(LOST, measured=TUESDAY),
            F2=_said(Figure("F2", "lost", 3, "= 0"), measured=TUESDAY),
            F8=_said(failures=("test_x: it <b>|broke",), measured=TUESDAY),
            F38=replace(_said(LOST, measured=TUESDAY), skipped=("test_y: no strace",)),
            F45=_said(LOST, measured=TUESDAY),
        ),
        tmp_path,
        HERE,
    )
    for row in CATALOGUE:
        assert _line_of(row, page).count(" | ") == 5
    assert "lost **0** (= 0) | yes |" in _line_of("F5", page)
    assert "lost **3** (= 0) | **no** |" in _line_of("F2", page)
    assert "no figure | no figure |" in _line_of("F3", page)
    assert "**failed:** test_x: it &lt;b>\\|broke | **no** |" in _line_of("F8", page)
    assert "| **skipped:** test_y: no strace<br>lost **0** (= 0) | in part |" in _line_of(
        "F38", page
    )
    assert "lost **0** (= 0) | in part |" in _line_of("F45", page)
    assert f"**1 held**, 2 in part, 2 broken, {len(CATALOGUE) - 5} without a figure." in page
    assert "\n- **F8**, The server forgets its scripts: has not held\n" in page
    assert "\n- **F38**, " in page
    assert "- **F5**, " not in page


def test_many_figures_are_folded_and_what_is_broken_never_is(tmp_path: Path) -> None:
    figures = [Figure("F5", f"figure {number}", 0, "= 0") for number in range(9)]
    tests = {f"test_{number}": 1 for number in range(5)}
    many = replace(_said(*figures), tests=tests)
    line = _line_of("F5", markdown(_kept(F5=many), tmp_path, HERE))
    shown, _, folded = line.partition("<details><summary>and 3 more</summary>")
    assert shown.count("figure ") == 6
    assert folded.partition("</details>")[0].count("figure ") == 3
    assert "`test_2`<br><details><summary>and 2 more</summary>`test_3`" in line
    figures[8] = replace(figures[8], value=1)
    line = _line_of("F5", markdown(_kept(F5=_said(*figures)), tmp_path, HERE))
    assert "| figure 8 **1** (= 0)<br>figure 0 **0** (= 0)<br>" in line
    all_broken = [replace(figure, value=1) for figure in figures]
    line = _line_of("F5", markdown(_kept(F5=_said(*all_broken)), tmp_path, HERE))
    assert "<details>" not in line


def test_a_row_of_another_day_says_so(tmp_path: Path) -> None:
    page = markdown(_kept(F5=_said(LOST), F8=_said(LOST, measured=TUESDAY)), tmp_path, HERE)
    assert "| yes<br>2026-11-16 |" in _line_of("F5", page)
    assert "| yes |" in _line_of("F8", page)


def test_the_page_says_which_state_of_the_package_each_source_has_seen(tmp_path: Path) -> None:
    kept = _kept(F5=_said(LOST), F8=_said(LOST, measured=TUESDAY), F35=_said(LOST))
    kept.rows["F8"]["fuzz"] = _said(LOST, measured=TUESDAY)
    page = markdown(kept, tmp_path, HERE)
    table = "\n".join(
        [
            f"| tests | 2026-11-17 10:00 | `{HERE}`, this one | 1 |",
            "| tests | 2026-11-16 10:00 | **not noted**, commit `c0ffee` | 2 |",
            f"| fuzz | 2026-11-17 10:00 | `{HERE}`, this one | 1 |",
        ]
    )
    assert table in page
    assert "Of those that held, 1 were measured entirely at the state" in page
    assert "of the other 2, at least one source is older" in page
    assert written_at(page) == HERE
    later = markdown(kept, tmp_path, "0123456789")
    assert f"| `{HERE}`, **another** | 1 |" in later
    assert "Of those that held, 0 were" in later


@pytest.mark.parametrize("state", [f"{HERE}+", "unknown"])
def test_a_state_that_cannot_be_told_from_others_is_no_proof(tmp_path: Path, state: str) -> None:
    kept = _kept(F8=_said(LOST, measured=TUESDAY))
    kept.circumstances[TUESDAY]["package"] = state
    page = markdown(kept, tmp_path, state)
    assert f"| `{state}`, **not certain** |" in page
    assert "Of those that held, 0 were" in page
    assert (written_at(page), written_at("an older page")) == (state, "unknown")


def test_machines_that_are_alike_are_told_once(tmp_path: Path) -> None:
    kept = _kept(F5=_said(LOST))
    assert "- 2026-11-17 10:00: Python 3.12.1\n- 2026-11-16 10:00: Python 3.11.2\n" in markdown(
        kept, tmp_path, HERE
    )
    kept.circumstances[MONDAY]["Python"] = "3.12.1"
    assert "- 2026-11-17 10:00, 2026-11-16 10:00: Python" in markdown(kept, tmp_path, HERE)


def _git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    words = ("git", *who, *words)
    return subprocess.run(
        words, cwd=folder, check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_the_state_of_the_package_outlives_its_commit(tmp_path: Path) -> None:
    assert package(tmp_path) == "unknown"
    code = tmp_path / "data_fetcher_core" / "queue.py"
    code.parent.mkdir()
    code.write_text("1\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        _git(tmp_path, *words)
    before = package(tmp_path)
    assert _git(tmp_path, "rev-parse", "HEAD:data_fetcher_core").startswith(before)
    (tmp_path / "README.md").write_text("other")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-q", "--amend", "-m", "two")
    assert package(tmp_path) == before
    code.with_name("new.py").write_text("2\n")
    assert package(tmp_path) == f"{before}+"


def test_what_is_kept_by_hand_is_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "defects.md").write_text("# Defects\n\nA cursor *was* lost.\n")
    (tmp_path / "not_promised.md").write_text("Exactly once.\n")
    page = markdown(Kept(), tmp_path, HERE)
    assert "## Defects it found\n\nA cursor *was* lost.\n" in page
    assert "\n\nExactly once.\n" in page.partition("## What is not promised\n")[2]


def test_what_a_command_has_said_is_on_the_page(tmp_path: Path) -> None:
    kept = Kept(outputs={"power": Output(MONDAY, "python -m tests.power", None, 12.3, "a\n```\nb")})
    page = markdown(kept, tmp_path, HERE)
    assert page.index("## Measured") < page.index("## What the commands printed\n\n### Power\n")
    assert "`python -m tests.power`, 2026-11-16, 12 s, not in time:" in page
    assert "```text\na\n` ` `\nb\n```" in page


def test_a_row_says_what_it_wants_whatever_else_has_shown_it(tmp_path: Path) -> None:
    wanted = "wants `python -m tests.power --cuts 10000` |"
    assert wanted in _line_of("F45", markdown(Kept(), tmp_path, HERE))
    kept = _kept(F45=replace(_said(LOST), tests={"test_cuts": 2}))
    line = _line_of("F45", markdown(kept, tmp_path, HERE))
    assert f"| {wanted.removesuffix(' |')}<br>`test_cuts` (2) |" in line
    kept.rows["F45"]["power"] = _said(LOST)
    assert "wants" not in _line_of("F45", markdown(kept, tmp_path, HERE))


# --- merging -------------------------------------------------------------------------------------


def test_a_run_of_some_rows_leaves_the_others_alone(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    save(path, _kept(F1=_said(LOST), F2=_said(LOST), F9=_said(LOST)))
    kept = load(path)
    kept.circumstances[TUESDAY] = {"Python": "3.12.1"}
    new = {"F1": _said(LOST, measured=TUESDAY), "F9": _said(LOST, measured=TUESDAY)}
    merge(kept, "tests", new, ["F1", "F2"])
    assert {row: said["tests"].measured for row, said in kept.rows.items()} == {
        "F1": TUESDAY,  # measured anew
        "F9": MONDAY,  # nobody asked for it
    }  # and what was asked for and not shown any more is gone


def test_a_source_replaces_only_what_it_said_itself() -> None:
    kept = Kept(rows={"F45": {"tests": _said(LOST), "power": _said(LOST)}})
    merge(kept, "tests", {"F45": _said(measured=TUESDAY)}, ["F45"])
    assert {name: one.measured for name, one in kept.rows["F45"].items()} == {
        "tests": TUESDAY,
        "power": MONDAY,
    }


def test_what_is_saved_is_loaded_again(tmp_path: Path) -> None:
    kept = _kept(F1=_said(LOST, failures=("no",)), F2=_said(LOST, measured=TUESDAY))
    kept.rows["F3"] = {"tests": replace(_said(LOST), skipped=("test_x: no strace",))}
    kept.outputs["power"] = Output(MONDAY, "python -m tests.power", 0, 1.5, "é")
    save(tmp_path / "new" / "figures.json", kept)
    assert load(tmp_path / "new" / "figures.json") == kept
    assert load(tmp_path / "nothing.json") == Kept()


def test_circumstances_that_nothing_was_measured_in_are_dropped(tmp_path: Path) -> None:
    save(tmp_path / "figures.json", _kept(F1=_said(LOST)))
    assert list(load(tmp_path / "figures.json").circumstances) == [MONDAY]


# --- the command ---------------------------------------------------------------------------------


def _render(figures: Path, *more: str) -> int:
    page = figures.with_suffix(".md")
    return main(["--from", str(figures), "--markdown", str(page), *more])


def _saved(path: Path, rows: dict[str, Statement], without: Collection[str] = ()) -> Path:
    """All of them shown by tests, and by the commands that are to show them."""
    kept = _kept(**rows)
    for row, said in kept.rows.items():
        said.update({name: rows[row] for name in CATALOGUE[row].by if name not in without})
    save(path, kept)
    return path


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    all_held = {row: _said(replace(LOST, fault=row)) for row in CATALOGUE}
    assert _render(_saved(path, all_held)) == 0
    assert _render(_saved(path, all_held, without=["power"])) == 3
    assert "F45  in part" in capsys.readouterr().out
    assert _render(path, "--only", "F5,F8") == 0
    assert _render(path, "--only", "F45") == 3
    assert "wants `python -m tests.power --cuts 10000`" in capsys.readouterr().out
    save(path, _kept(**{**all_held, "F2": _said(replace(LOST, value=1))}))
    assert _render(path) == 1
    assert "F2  BROKEN" in capsys.readouterr().out
    assert _render(path, "--only", "F5,f8") == 0
    del all_held["F9"]
    assert _render(_saved(path, all_held)) == 3
    assert "F9  no figure" in capsys.readouterr().out
    assert "| F9 |" in path.with_suffix(".md").read_text()


@pytest.mark.parametrize(
    "wrong", [["--only", "F99"], ["--only", ","], ["--tier", "x"], ["--from", "nothing.json"]]
)
def test_wrong_usage(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_help_tells_the_exit_codes() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tests.reliability", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=TESTS_FOLDER.parent,
    )
    assert "3 a row has no figure, or held in part" in " ".join(said.stdout.split())


def test_the_page_is_that_of_the_figures() -> None:
    """Whoever changes a part kept by hand, or a figure, writes the page again."""
    docs = TESTS_FOLDER.parent / "docs"
    kept, page = load(docs / "reliability" / "figures.json"), (docs / "reliability.md").read_text()
    assert page == markdown(kept, docs / "reliability", written_at(page))


def test_the_page_is_written_in_the_order_in_which_figures_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would not be that of its figures until somebody writes it again."""
    figures, page = tmp_path / "figures.json", tmp_path / "page.md"

    def prove(options: Any, rows: Any, kept: Kept, teller: Any) -> None:
        for name in ("power", "fuzz"):
            kept.outputs[name] = Output(MONDAY, f"tests.{name}", 0, 1.0, f"{name} said this")
        save(options.json, kept)

    monkeypatch.setattr("tests.reliability.__main__.prove", prove)
    main(["--json", str(figures), "--markdown", str(page)])
    text = page.read_text()
    assert "fuzz said this" in text
    assert text == markdown(load(figures), FIGURES.parent, written_at(text))
