"""What mutation testing goes by: its plan and its list are true of the code as it is now."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutations import equivalent, verdicts
from tests.mutations.__main__ import main, told
from tests.mutations.equivalent import Equivalent
from tests.mutations.plan import GROUPS, chosen, path_of
from tests.mutations.verdicts import Mutant, Verdict

HOME = Path(__file__).parents[1]
MUTANT = Mutant("data_fetcher_core.retry.x_wait__mutmut_3", "retry.wait", "a = 1", "a = 2")


def squeezed(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_what_is_planned_is_there(group: object) -> None:
    assert isinstance(group, type(GROUPS[0]))
    for module in group.modules:
        assert (HOME / path_of(module)).is_file()
    for test in group.tests:
        name, _, function = test.partition("::")
        assert function in (HOME / name).read_text()


@pytest.mark.parametrize("known", equivalent.read(), ids=lambda known: known.where or known.was)
def test_what_is_said_to_change_nothing_is_still_in_the_code(known: Equivalent) -> None:
    assert known.why.endswith(".")
    assert known.was not in known.now
    modules = [module for group in GROUPS for module in group.modules]
    own = [module for module in modules if known.where.startswith(f"{module}.")] or modules
    sources = [squeezed((HOME / path_of(module)).read_text()) for module in own]
    # mutmut takes the name out of the first line of a function.
    wanted = squeezed(known.was).replace("def (", f"def {known.where.rpartition('.')[2]}(")
    assert any(wanted in source for source in sources), "take it out of the list, or mend it"


def test_modules_are_chosen_by_their_names() -> None:
    assert [(group.name, group.modules) for group in chosen(["retry", "loader.u*"])] == [
        ("decisions", ("retry",)),
        ("web", ("loader.urls",)),
    ]
    assert chosen([]) == list(GROUPS)
    assert main(["--modules", "no.such"]) == 2


def test_a_change_in_any_line() -> None:
    known = Equivalent('"utf-8"', ('"UTF-8"',), "Names.")
    line = 'a("utf-8", b("utf-8"))'
    assert known.covers(replace(MUTANT, was=line, now='a("UTF-8", b("utf-8"))'))
    assert known.covers(replace(MUTANT, was=line, now='a("utf-8", b("UTF-8"))'))
    assert not known.covers(replace(MUTANT, was=line, now='a("UTF-8", b("UTF-8"))'))
    assert not known.covers(replace(MUTANT, was=line, now=line))


def test_a_change_in_one_place_only() -> None:
    known = Equivalent("a = 1", ("a = 2", "a = 3"), "So.", "retry.wait")
    assert known.covers(MUTANT)
    assert not known.covers(replace(MUTANT, now="a = 4"))
    assert not known.covers(replace(MUTANT, where="retry.other"))
    gone = replace(known, was="a = 0")
    assert equivalent.stale([known, gone, replace(gone, where="retry.other")], [MUTANT]) == [gone]


def test_trials_are_kept(tmp_path: Path) -> None:
    assert verdicts.load(tmp_path) == []
    other = replace(MUTANT, name="data_fetcher_core.retry.x_wait__mutmut_4")
    verdicts.save(tmp_path, [MUTANT, other])
    verdicts.note(tmp_path, replace(MUTANT, verdict=Verdict.KILLED, by="a test"))
    with (tmp_path / "trials.jsonl").open("a") as under_way:
        under_way.write('["data_fet')
    assert verdicts.load(tmp_path) == [replace(MUTANT, verdict=Verdict.KILLED, by="a test"), other]
    assert (other.function, other.module) == ("data_fetcher_core.retry.x_wait", "retry")


@pytest.mark.parametrize(
    ("dead", "alive", "untried", "code"), [(9, 1, 0, 0), (8, 1, 0, 1), (99, 1, 1, 1), (0, 0, 0, 1)]
)
def test_a_tenth_may_live_on(
    tmp_path: Path, dead: int, alive: int, untried: int, code: int
) -> None:
    ends = {Verdict.KILLED: dead, Verdict.SURVIVED: alive, Verdict.UNTRIED: untried}
    mutants = [replace(MUTANT, verdict=v) for v, count in ends.items() for _ in range(count)]
    assert told(mutants, tmp_path / "figures.json") == code
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert {figure["fault"] for figure in figures} == {"MUT"}
