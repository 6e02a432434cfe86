"""What mutation testing goes by: its plan and its list are true of the code as it is now."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutations import equivalent, looked_at, verdicts
from tests.mutations.__main__ import main, told
from tests.mutations.equivalent import Equivalent
from tests.mutations.looked_at import LookedAt
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


@pytest.mark.parametrize("known", looked_at.read(), ids=lambda known: f"{known.where} {known.was}")
def test_what_was_looked_at_is_still_in_the_code(known: LookedAt) -> None:
    assert known.why.endswith(".")
    modules = [module for group in GROUPS for module in group.modules]
    place = known.where.partition("*")[0]
    own = [
        module
        for module in modules
        if f"{module}.".startswith(place) or place.startswith(f"{module}.")
    ]
    sources = " ".join(squeezed((HOME / path_of(module)).read_text()) for module in own)
    missing = [part for part in known.was.split("*") if squeezed(part) not in sources]
    assert not missing, "take it out of the list, or mend it"


def test_the_tests_that_are_said_to_notice_are_there() -> None:
    named = {name for known in looked_at.read() for name in re.findall(r"\btest_\w+", known.why)}
    files = {test.partition("::")[0] for group in GROUPS for test in group.tests}
    tests = {
        name for file in files for name in re.findall(r"def (test_\w+)", (HOME / file).read_text())
    }
    assert named
    assert not named - tests


def test_what_was_looked_at_is_known_by_its_place_and_its_kind() -> None:
    known = LookedAt("retry.*", "So.", "a[*] = 1", "*XX*")
    mutant = replace(MUTANT, was="a[0] = 1", now='a["XX0XX"] = 1\nb')
    assert looked_at.reason(mutant, [replace(known, where="queue.*"), known]) == "So."
    others = replace(mutant, where="other.wait"), replace(mutant, was="a0 = 1")
    for other in (*others, replace(mutant, now="a[1] = 1")):
        assert looked_at.reason(other, [known]) is None
    gone = replace(known, was="b")
    assert looked_at.stale([known, gone, replace(gone, where="queue.*")], [mutant]) == [gone]


def test_a_survivor_is_told_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(
        looked_at, "read", lambda: [LookedAt("retry.wait", "It waits.", now="a = 2")]
    )
    seen = replace(MUTANT, verdict=Verdict.SURVIVED)
    new = replace(seen, now="a = 3")
    dead = replace(new, verdict=Verdict.KILLED, now="a = 4")
    assert told([seen, new, *([dead] * 18)], tmp_path / "figures.json") == 1
    said = capsys.readouterr().out
    assert "retry.wait (survived): It waits.\n  - a = 1\n  + a = 2\n" in said
    assert "retry.wait (survived): NOT LOOKED AT\n  - a = 1\n  + a = 3\n" in said
    figures = {
        one["what"]: one["value"] for one in json.loads((tmp_path / "figures.json").read_text())
    }
    assert figures["survivors that nobody has looked at"] == 1


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
    ("counts", "code"), [((9, 1, 0), 0), ((8, 1, 0), 1), ((99, 1, 1), 1), ((0, 0, 0), 1)]
)
def test_a_tenth_may_live_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, counts: tuple[int, int, int], code: int
) -> None:
    monkeypatch.setattr(looked_at, "read", lambda: [LookedAt("*", "So.")])
    ends = dict(zip((Verdict.KILLED, Verdict.SURVIVED, Verdict.UNTRIED), counts, strict=True))
    mutants = [replace(MUTANT, verdict=v) for v, count in ends.items() for _ in range(count)]
    assert told(mutants, tmp_path / "figures.json") == code
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert {figure["fault"] for figure in figures} == {"MUT"}
