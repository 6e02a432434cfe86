"""The account of a chaotic run tells every kind of lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.chaos.account import Account, Picture, close
from tests.chaos.explaining import GIVEN_BACK, KILLED, POISON, SILENCED, STOPPED, read_chronicle
from tests.chaos.ledger import DIED, SUFFIX, Call, Fault, Note, Pen, Reader, Records, read_all
from tests.chaos.names import children_of, is_poison, make_name, number_of, parent_of
from tests.chaos.producer import is_keyed, standing
from tests.chaos.tiers import LONG, SHORT, plan
from tests.chaos.timing import (
    answered_after,
    latencies,
    percentile,
    stops,
    taken_up_after,
)

TTL = 10.0


# --- an honest run, and one for each kind of lie -------------------------------------------------


def sent(*names: str, outcome: str = "ok", at: float = 0.0) -> Call:
    return Call("enqueue", names, "", "p0.1", at, at + 0.1, outcome)


def leased(name: str, token: str, process: str = "w0.1", at: float = 1.0) -> Call:
    return Call("lease", (name,), token, process, at - 0.1, at, "ok")


def settled(
    op: str, name: str, token: str, outcome: str = "ok", *, at: float = 2.0, process: str = "w0.1"
) -> Call:
    end = None if outcome == DIED else at + 0.1
    return Call(op, (name,), token, process, at, end, outcome)


def done(name: str, token: str = "t", at: float = 1.0) -> list[Call]:
    return [leased(name, token, at=at), settled("complete", name, token, at=at + 1)]


def account(
    calls: Sequence[Call],
    completed: Sequence[str] = (),
    *,
    dead: Sequence[tuple[str, str, int]] = (),
    queued: Sequence[str] = (),
    notes: Sequence[Note] = (),
    faults: Sequence[Fault] = (),
    stats: dict[str, int] | None = None,
) -> Account:
    records = Records(list(calls), list(notes), list(faults))
    picture = Picture(tuple(completed), tuple(dead), tuple(queued), stats or {})
    return close(records, picture, read_chronicle(records, TTL), max_deaths=5)


def lies(of: Account) -> set[str]:
    return {lie for lie, names in of.lies.items() if names}


def test_an_honest_run() -> None:
    poison = Note("poison", "w0.2", 9.0, "x0-2")
    calls = [sent("0-0", "0-1/1", "x0-2", "0-3"), *done("0-0", "a"), *done("0-1/1", "b")]
    calls += [*done("0-1/1.0", "c"), leased("x0-2", "d", "w0.2", 8.0)]
    found = account(
        calls,
        ["0-0", "0-1/1", "0-1/1.0"],
        dead=[("x0-2", "poisoned", 5)],
        queued=["0-3"],
        notes=[poison],
        stats={"completed": 3, "dead": 1, "enqueued": 5},
    )
    assert found.problems() == []
    assert (found.accepted, found.settled, found.dead, found.queued) == (5, 3, 1, 1)
    assert found.repetitions == []


@pytest.mark.parametrize("outcome", [DIED, "cancelled", "unavailable"])
def test_what_nobody_knows_may_be_either_way(outcome: str) -> None:
    calls = [sent("0-0", "0-1", outcome=outcome), *done("0-0")]
    found = account(calls, ["0-0"])
    assert found.problems() == []
    assert (found.accepted, found.unknown, found.unknown_kept) == (0, 2, 1)
    half = [sent("0-0/1"), leased("0-0/1", "t"), settled("complete", "0-0/1", "t", outcome)]
    assert account(half, queued=["0-0/1"]).problems() == []
    assert account(half, ["0-0/1"], queued=["0-0/1.0"]).problems() == []


def test_lost() -> None:
    found = account([sent("0-0", "0-1"), *done("0-0")], ["0-0"])
    assert lies(found) == {"lost"}
    assert found.balance() == 1


def test_refused_and_there_all_the_same() -> None:
    assert lies(account([sent("0-0", outcome="full")], queued=["0-0"])) == {"invented"}


def test_invented() -> None:
    assert "invented" in lies(account([], queued=["0-0"]))


def test_delivered_and_never_sent() -> None:
    assert "delivered and never sent" in lies(account([leased("0-0", "t")]))


def test_in_two_places() -> None:
    found = account([sent("0-0"), *done("0-0")], ["0-0"], queued=["0-0"])
    assert lies(found) == {"in two places"}
    assert found.balance() == -1


def test_told_done_and_not_done() -> None:
    found = account([sent("0-0"), *done("0-0")], queued=["0-0"])
    assert lies(found) == {"told done and not done"}


def test_done_and_nobody_did_it() -> None:
    found = account([sent("0-0"), leased("0-0", "t")], ["0-0"])
    assert lies(found) == {"done and nobody did it"}


def test_settled_twice() -> None:
    calls = [sent("0-0"), *done("0-0", "a"), *done("0-0", "b", at=5.0)]
    found = account(calls, ["0-0"])
    assert lies(found) == {"completed more than once"}
    assert [one.explained for one in found.repetitions] == [False]


def test_a_completion_by_halves() -> None:
    calls = [sent("0-0/1"), *done("0-0/1")]
    assert lies(account(calls, ["0-0/1"])) == {"lost", "completion without its children"}
    doubtful = [sent("0-0/1"), leased("0-0/1", "t"), settled("complete", "0-0/1", "t", DIED)]
    found = account(doubtful, queued=["0-0/1", "0-0/1.0"])
    assert lies(found) == {"child without its parent's completion"}


def test_counts_that_are_wrong() -> None:
    found = account([sent("0-0"), *done("0-0")], ["0-0"], stats={"completed": 2})
    assert lies(found) == {"counted wrongly"}


def test_poison_that_was_not_buried_as_such() -> None:
    calls = [sent("x0-0")]
    assert lies(account(calls, dead=[("x0-0", "failed", 1)])) == {"buried for another reason"}
    assert lies(account(calls, dead=[("x0-0", "poisoned", 4)])) == {"buried for another reason"}


def test_an_innocent_that_was_buried() -> None:
    calls = [sent("0-0"), *(leased("0-0", f"{n}", f"w{n}.1", at=n + 1.0) for n in range(5))]
    ends = [Note("poison", f"w{n}.1", n + 1.5, "x0-1") for n in range(5)]
    buried = [("0-0", "poisoned", 5)]
    assert lies(account(calls, dead=buried, notes=ends)) == {"buried though not poison"}
    ends[4] = Note("killed", "w4.1", 5.5, "")
    unlucky = account(calls, dead=buried, notes=ends)
    assert (unlucky.problems(), unlucky.unlucky) == ([], 1)


def test_a_lease_taken_from_a_process_that_lived() -> None:
    calls = [sent("0-0"), leased("0-0", "a"), settled("complete", "0-0", "a", "lost")]
    calls += [leased("0-0", "b", "w1.1", 1.5), settled("complete", "0-0", "b", process="w1.1")]
    found = account(calls, ["0-0"])
    assert lies(found) == {"taken from a process that lived"}
    assert [one.explained for one in found.repetitions] == [False]
    away = account(calls, ["0-0"], faults=[Fault("server killed", 1.1, 1.1 + TTL)])
    assert away.problems() == []
    assert away.causes == {SILENCED: 1}


def test_refused_after_one_that_may_have_been_done_is_no_loss() -> None:
    first = settled("complete", "0-0", "a", "cancelled", at=2.0)
    calls = [
        sent("0-0"),
        leased("0-0", "a"),
        first,
        settled("complete", "0-0", "a", "lost", at=3.0),
    ]
    assert account(calls, ["0-0"]).problems() == []


# --- duplicates ----------------------------------------------------------------------------------


TWICE = [
    sent("0-0"),
    leased("0-0", "a", "w0.1", 1.0),
    leased("0-0", "b", "w1.1", 5.0),
    settled("complete", "0-0", "b", at=6.0, process="w1.1"),
]


@pytest.mark.parametrize(
    ("note", "cause"), [("killed", KILLED), ("poison", POISON), ("closing", STOPPED)]
)
def test_a_duplicate_that_is_explained_by_its_process(note: str, cause: str) -> None:
    found = account(TWICE, ["0-0"], notes=[Note(note, "w0.1", 4.0, "")])
    assert found.problems() == []
    assert found.causes == {cause: 1}


@pytest.mark.parametrize("op", ["give_back", "release"])
@pytest.mark.parametrize("outcome", ["ok", "cancelled", DIED])
def test_a_duplicate_that_was_given_back(op: str, outcome: str) -> None:
    found = account([*TWICE, settled(op, "0-0", "a", outcome, at=4.0)], ["0-0"])
    assert found.problems() == []
    assert found.causes == {GIVEN_BACK: 1}


@pytest.mark.parametrize(
    "excuses",
    [
        [],
        [Note("killed", "w0.1", 5.5, "")],
        [Note("killed", "w0.2", 4.0, "")],
        [Note("killed", "w1.1", 4.0, "")],
    ],
    ids=["none", "killed later", "its successor was killed", "another was killed"],
)
def test_a_duplicate_without_a_cause(excuses: list[Note]) -> None:
    found = account(TWICE, ["0-0"], notes=excuses)
    assert len(found.unexplained) == 1
    assert found.problems() != []


def test_an_outage_shorter_than_a_lease_explains_nothing() -> None:
    found = account(TWICE, ["0-0"], faults=[Fault("server killed", 1.5, 1.5 + TTL / 2)])
    assert len(found.unexplained) == 1


def test_no_cause_excuses_a_delivery_after_completion() -> None:
    calls = [*TWICE, settled("complete", "0-0", "a", at=2.0)]
    found = account(calls, ["0-0"], notes=[Note("killed", "w0.1", 4.0, "")])
    assert len(found.unexplained) == 1


def test_no_cause_excuses_a_token_that_comes_twice() -> None:
    calls = [sent("0-0"), leased("0-0", "a"), leased("0-0", "a", "w1.1", 5.0)]
    found = account(calls, queued=["0-0"], notes=[Note("killed", "w0.1", 4.0, "")])
    assert len(found.unexplained) == 1


# --- ledgers -------------------------------------------------------------------------------------


def test_a_ledger_keeps_what_was_noted_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / f"w0{SUFFIX}"
    pen = Pen(path, "w0.1")
    first = pen.begin("complete", ["0-0"], "a")
    pen.end(first, "ok")
    pen.begin("complete", ["0-1"], "b")
    pen.whole("lease", ["0-2"], 1.0, "ok", "c")
    pen.note("poison", "x0-3")
    pen.fault("full", 1.0)
    pen.close()
    with path.open("ab") as file:
        file.write(b'{"process": "w0.1", "note": "torn')
    records = read_all(tmp_path)
    assert [(call.op, call.names, call.token, call.outcome) for call in records.calls] == [
        ("complete", ("0-0",), "a", "ok"),
        ("lease", ("0-2",), "c", "ok"),
        ("complete", ("0-1",), "b", DIED),
    ]
    assert [(note.kind, note.about) for note in records.notes] == [("poison", "x0-3")]
    assert [fault.kind for fault in records.faults] == ["full"]


def test_a_ledger_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / f"w0{SUFFIX}"
    pen, reader = Pen(path, "w0.1"), Reader()
    call = pen.begin("enqueue", ["0-0"])
    assert reader.news([path]).calls == []
    assert len(reader.unfinished()) == 1
    pen.end(call, "ok")
    assert [one.outcome for one in reader.news([path]).calls] == ["ok"]
    assert reader.unfinished() == []
    assert reader.news([path]) == Records()
    pen.close()


def test_names_say_all() -> None:
    assert make_name(3, 17) == "3-17"
    assert children_of(make_name(3, 17, children=2)) == ("3-17/2.0", "3-17/2.1")
    assert children_of("3-17/2.1") == ()
    assert (parent_of("3-17/2.1"), parent_of("3-17/2")) == ("3-17/2", None)
    assert is_poison(make_name(0, 1, poison=True))
    assert [number_of(name) for name in ("3-17", "3-17/2", "x3-17")] == [17, 17, 17]


def test_a_producer_goes_on_where_it_was_killed() -> None:
    keyed = [name for name in ("0-10", "0-11") if is_keyed(name)]
    assert len(keyed) == 2
    calls = [sent("0-9/1"), sent("0-10", outcome=DIED), sent("0-11", outcome="cancelled")]
    calls += [sent("0-11"), sent("0-1500", outcome=DIED)]
    now = standing(calls)
    assert (now.next_number, now.accepted, now.doubtful) == (1501, 3, (("0-10",),))


# --- times ---------------------------------------------------------------------------------------


def test_times_leave_out_what_a_fault_explains() -> None:
    slow = Call("enqueue", ("0-1",), "", "p0.1", 5.0, 9.0, "ok")
    records = Records([sent("0-0"), slow], [], [Fault("server killed", 4.0, 6.0)])
    assert latencies(records.calls, "enqueue", records.faults) == [0.1]
    assert answered_after(records, ["server killed"]) == [3.0]
    assert answered_after(records, ["flapping"]) == []


def test_how_long_the_dead_were_mourned() -> None:
    notes = [Note("born", "w0.1", 0.0, "consumer"), Note("killed", "w0.1", 5.0, "")]
    notes += [Note("reaped", "w1.1", 8.0, "consumer"), Note("reaped", "w2.1", 9.0, "consumer")]
    records = Records([], notes, [])
    assert taken_up_after(records, read_chronicle(records, TTL)) == [3.0]
    records.faults.append(Fault("full", 6.0, 7.0))
    assert taken_up_after(records, read_chronicle(records, TTL)) == []


def test_how_long_a_stop_took() -> None:
    told = [Note("told to stop", "w0.1", at, "") for at in (10.0, 11.0)]
    assert stops([*told, Note("gone", "w0.1", 12.0, "0")], []) == [2.0]
    assert stops([*told, Note("gone", "w0.1", 12.0, "0")], [Fault("full", 11.0, 11.5)]) == []
    assert stops([*told, Note("gone", "w0.1", 12.0, "-9")], []) == []


def test_percentiles() -> None:
    assert percentile(range(1, 101), 99) == 99
    assert percentile([], 99) == 0.0


def test_one_seed_is_one_plan() -> None:
    assert plan(SHORT, 7, has_server=True) == plan(SHORT, 7, has_server=True)
    assert plan(SHORT, 7, has_server=True) != plan(SHORT, 8, has_server=True)
    kinds = [step.kind for steps in plan(SHORT, 7, has_server=True).values() for step in steps]
    assert kinds.count("kill") >= 10
    assert kinds.count("kill server") >= 3
    assert "kill server" not in {step.kind for step in plan(SHORT, 7, has_server=False)["store"]}
    assert len(plan(LONG, 7, has_server=True)["workers"]) >= 900


def test_a_part_of_a_tier_is_still_that_tier_and_says_how_much_of_it() -> None:
    half = SHORT.lasting(0.25)
    assert (half.name, half.share, half.requests) == ("short", 0.5, 2_500)
    assert SHORT.lasting(0.5) == SHORT
