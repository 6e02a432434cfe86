"""The ledgers of a chaotic run are a history: an honest one passes, and each lie is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from tests.chaos.__main__ import BROKEN, HELD, main
from tests.chaos.account import Picture
from tests.chaos.explaining import read_chronicle
from tests.chaos.history import Judgement, judge
from tests.chaos.ledger import ALL, DIED, OUTAGE, SUFFIX, Call, Fault, Note, Records, read_all
from tests.chaos.names import block_of
from tests.histories import Event, Violation, check
from tests.test_chaos_account import TTL, done, leased, sent, settled
from tests.test_chaos_figures import kept_run


def judged(
    calls: Sequence[Call],
    completed: Sequence[str] = ("0-0",),
    *,
    dead: Sequence[tuple[str, str, int]] = (),
    queued: Sequence[str] = (),
    notes: Sequence[Note] = (),
    faults: Sequence[Fault] = (),
) -> Judgement:
    records = Records(list(calls), list(notes), list(faults))
    picture = Picture(tuple(completed), tuple(dead), tuple(queued))
    return judge(records, picture, read_chronicle(records, TTL))


def rules(judgement: Judgement) -> set[str]:
    return {violation.rule for violation in judgement.violations}


# --- what may be -------------------------------------------------------------------------------


def test_an_honest_run() -> None:
    calls = [sent("0-0", "0-1/1", "x0-2", "0-3"), *done("0-0", "a"), *done("0-1/1", "b")]
    calls += [*done("0-1/1.0", "c", at=5.0), leased("x0-2", "d", "w0.2", 8.0)]
    found = judged(
        calls,
        ["0-0", "0-1/1", "0-1/1.0"],
        dead=[("x0-2", "poisoned", 5)],
        queued=["0-3"],
        notes=[Note("poison", "w0.2", 9.0, "x0-2")],
    )
    assert (found.violations, found.told) == ([], [])
    # Four sent, four leased, three completed, of which one sent a child.
    assert found.parts == 12


@pytest.mark.parametrize("outcome", [DIED, "cancelled", "unavailable"])
def test_what_nobody_knows_may_be_either_way(outcome: str) -> None:
    half = [sent("0-0/1"), leased("0-0/1", "t"), settled("complete", "0-0/1", "t", outcome)]
    assert rules(judged(half, [], queued=["0-0/1"])) == set()
    assert rules(judged(half, ["0-0/1"], queued=["0-0/1.0"])) == set()
    assert rules(judged([sent("0-0", outcome=outcome)], [])) == set()


# --- what may not ------------------------------------------------------------------------------

SECOND = leased("0-0", "b", "w1.1", at=3.0)
ITS_END = settled("complete", "0-0", "b", at=4.0, process="w1.1")
TWO_HOLDERS = [
    sent("0-0"),
    leased("0-0", "a"),
    SECOND,
    ITS_END,
    settled("complete", "0-0", "a", "lost", at=5.0),
]


def test_leased_twice_at_one_time() -> None:
    assert rules(judged(TWO_HOLDERS)) == {"two holders"}


@pytest.mark.parametrize(
    ("fault", "excused"),
    [
        (Fault(OUTAGE, 1.5, 1.5 + TTL), True),
        (Fault(ALL, 1.5, 1.5 + TTL), True),
        (Fault(OUTAGE, 1.5, 2.5), False),
        (Fault("full", 1.5, 1.5 + TTL), False),
        (Fault("slow", 1.5, 1.5 + TTL), False),
        (Fault(OUTAGE, 3.5, 3.5 + TTL), False),
    ],
    ids=["away", "all away", "away for a moment", "full", "slow", "away too late"],
)
def test_only_a_silence_excuses_two_holders(fault: Fault, *, excused: bool) -> None:
    assert rules(judged(TWO_HOLDERS, faults=[fault])) == (set() if excused else {"two holders"})


@pytest.mark.parametrize(("died_at", "excused"), [(2.0, True), (3.5, False)])
def test_the_dead_hold_what_they_never_settled_until_they_die(
    died_at: float, *, excused: bool
) -> None:
    calls = [sent("0-0"), leased("0-0", "a"), SECOND, ITS_END]
    for kind in ("killed", "poison"):
        found = judged(calls, notes=[Note(kind, "w0.1", died_at, "")])
        assert rules(found) == (set() if excused else {"two holders"})


def test_settled_a_second_time() -> None:
    again = settled("complete", "0-0", "a", at=4.0)
    assert "settled twice" in rules(judged([sent("0-0"), *done("0-0", "a"), again]))
    other = done("0-0", "b", at=5.0)
    found = rules(judged([sent("0-0"), *done("0-0", "a"), *other]))
    assert {"ended twice", "came back", "acknowledged and not kept"} <= found


def test_settled_before_it_was_accepted() -> None:
    early = rules(judged([sent("0-0", at=9.0), *done("0-0", "a")]))
    assert "leased before it was sent" in early
    hasty = [sent("0-0"), settled("complete", "0-0", "a", at=0.2), leased("0-0", "a")]
    assert "settled without a lease" in rules(judged(hasty))
    assert "appeared" in rules(judged(done("0-0", "a")))


def test_settled_by_one_that_had_lost_it() -> None:
    late = settled("complete", "0-0", "a", at=5.0)
    given = settled("release", "0-0", "b", at=4.0, process="w1.1")
    calls = [sent("0-0"), leased("0-0", "a"), SECOND, given, late]
    assert "settled by a zombie" in rules(judged(calls))


def test_lost_or_invented() -> None:
    assert rules(judged([sent("0-0")], [])) == {"lost", "torn"}
    assert rules(judged([], ["0-0"])) == {"appeared", "completed by nobody"}
    refused = [sent("0-0", outcome="full")]
    assert rules(judged(refused, [], queued=["0-0"])) == {"torn"}


def test_a_step_that_was_done_in_part() -> None:
    assert "torn" in rules(judged([sent("0-0", "0-1", outcome=DIED), *done("0-0", "a")]))
    parent = [sent("0-0/1"), *done("0-0/1", "a")]
    assert "torn" in rules(judged(parent, ["0-0/1"]))


def test_the_first_that_cannot_be_are_told_with_all_that_is_known_of_them() -> None:
    calls = [call for n in range(9) for call in _two_holders_of(f"0-{n}")]
    found = judged(calls, [f"0-{n}" for n in range(9)])
    assert len(found.violations) == 9
    assert len(found.told) == 5
    first, *events = found.told[0].splitlines()
    assert first == "two holders: 0-0: w0.1 and w1.1 at 3.000000"
    assert [event.split()[2:5] for event in events if "lease" in event] == [
        ["w0.1", "lease", "0-0"],
        ["w1.1", "lease", "0-0"],
    ]


def _two_holders_of(name: str) -> list[Call]:
    return [
        dataclasses.replace(call, names=(name,), token=f"{name}{call.token}")
        for call in TWO_HOLDERS
    ]


# --- planted in the ledgers of a run -----------------------------------------------------------


def _plants(honest: Sequence[Call]) -> dict[str, list[Call]]:
    """For each rule, calls that break it beside the honest ones, of which there is one of each."""
    enqueue, lease, complete = honest
    assert lease.end is not None
    assert complete.end is not None
    between = (lease.end + complete.start) / 2
    before, after = enqueue.start - 1.0, complete.end + 1.0
    early = dataclasses.replace(lease, token="z", start=before - 1.0, end=before - 0.9)
    settled_early = dataclasses.replace(complete, token="z", start=before - 0.8, end=before)
    return {
        "two holders": [dataclasses.replace(lease, token="b", process="w9.1", end=between)],
        "settled twice": [dataclasses.replace(complete, start=complete.end, end=after)],
        "leased before it was sent": [early, settled_early],
    }


@pytest.mark.parametrize("rule", ["two holders", "settled twice", "leased before it was sent"])
def test_what_is_planted_in_a_ledger_is_found(
    tmp_path: Path, rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = kept_run(tmp_path / "sqlite", completed=["0-0"])
    assert main(["--again", str(folder)]) == HELD
    planted = _plants(read_all(folder).calls)[rule]
    lines = [orjson.dumps(dataclasses.asdict(call)) + b"\n" for call in planted]
    (folder / f"w9{SUFFIX}").write_bytes(b"".join(lines))
    assert main(["--again", str(folder)]) == BROKEN
    said = capsys.readouterr().out
    assert f"BROKEN: {rule}: 0-0: " in said
    (figure,) = [line for line in said.splitlines() if "histories" in line and "BROKEN" in line]
    assert "TIER-SHORT  histories that cannot be (sqlite" in figure


# --- how it is done ----------------------------------------------------------------------------


def test_what_shares_a_step_is_of_one_block() -> None:
    assert block_of("3-17") == block_of("x3-999") == block_of("3-17/2.1") == ("3", 0)
    assert block_of("3-1000") == ("3", 1)
    assert block_of("4-17") == ("4", 0)


def test_no_more_is_held_against_each_other_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """So ten times as many requests, and deaths, take ten times as long, not a hundred times."""
    sizes: list[int] = []

    def measured(history: Sequence[Event]) -> list[Violation]:
        sizes.append(len(history))
        return check(history)

    monkeypatch.setattr("tests.chaos.history.check", measured)
    names = [f"0-{n}" for n in range(5_000)]
    calls = [call for name in names for call in (sent(name), *done(name, name))]
    notes = [Note("killed", f"w{n}.1", 1.0, "") for n in range(1, 1_000)]
    assert judged(calls, names, notes=notes).violations == []
    assert sizes == [4 * 1_000 + 1] * 5
