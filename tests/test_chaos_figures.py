"""The figures of a chaotic run: what they leave out, and what they are held to."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.__main__ import BAD_USAGE, BROKEN, HELD, main
from tests.chaos.account import Picture, close
from tests.chaos.auditor import read_picture
from tests.chaos.explaining import read_chronicle
from tests.chaos.figures import Figures
from tests.chaos.history import judge
from tests.chaos.ledger import FLAP, OUTAGE, SLOW, SUFFIX, Call, Fault, Note, Pen, Records
from tests.chaos.mischief import Mischief
from tests.chaos.outcome import Kept, Outcome, keep, read_kept, read_outcome
from tests.chaos.poison import rate_of_others
from tests.chaos.processes import Processes
from tests.chaos.relay import Weather
from tests.chaos.stores import SQLitePlace
from tests.chaos.telling import Teller, tell
from tests.chaos.tiers import LONG, SHORT, SOAK, Step, Tier, plan
from tests.chaos.timing import (
    answered_after,
    closed_under_load,
    completed_after,
    last_fault,
    latencies,
    percentile,
    stops,
    taken_up_after,
    told_unavailable,
)
from tests.test_chaos_account import TTL, leased, sent, settled

# --- times -------------------------------------------------------------------------------------


def test_times_leave_out_what_a_fault_explains() -> None:
    slow = Call("enqueue", ("0-1",), "", "p0.1", 5.0, 9.0, "ok")
    records = Records([sent("0-0"), slow], [], [Fault(OUTAGE, 4.0, 6.0)])
    assert latencies(records.calls, "enqueue", records.faults) == [0.1]
    assert answered_after(records, [OUTAGE]) == [3.0]
    assert answered_after(records, ["flapping"]) == []


def test_who_gives_up_long_after_the_end_was_not_back() -> None:
    def gave_up(process: str, start: float, end: float) -> Call:
        return Call("enqueue", ("0-1",), "", process, start, end, "unavailable")

    outage = Fault(OUTAGE, 4.0, 6.0)
    lasting, soon, late = gave_up("p0.1", 5.0, 13.0), gave_up("p1.1", 5.0, 7.0), sent("0-2", at=9.0)
    assert answered_after(Records([lasting, soon, late], [], [outage]), [OUTAGE]) == [7.0]
    begun_afterwards = gave_up("p0.1", 7.5, 15.0)
    assert told_unavailable([lasting, soon, begun_afterwards], "enqueue", [outage]) == 1


def test_a_slow_network_is_a_fault_too() -> None:
    slow = [Fault(SLOW, 1.0, 4.0)]
    during = [Call("enqueue", (name,), "", "p0.1", 3.0, 3.08, "ok") for name in ("0-1", "0-2")]
    assert latencies([sent("0-0"), *during], "enqueue", slow) == [0.1]
    assert told_unavailable([sent("0-3", outcome="unavailable", at=5.0)], "enqueue", slow) == 0


def test_delays_are_uneven_and_counted() -> None:
    weather = Weather(seed=7)
    assert (weather.lateness(), weather.late) == (0.0, 0)
    weather.delay = weather.jitter = 0.05
    late = [weather.lateness() for _ in range(1_000)]
    assert weather.late == 1_000
    assert min(late) < 0.01
    assert max(late) > 0.09
    assert 0.04 < sum(late) / len(late) < 0.06


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
    assert stops([*told, Note("gone", "w0.1", 12.0, "0")], [Fault(OUTAGE, 7.0, 8.0)]) == [2.0]


def test_what_was_completed_after_the_last_fault() -> None:
    notes = [Note("killed", "w0.1", 5.0, ""), Note("gone", "w0.1", 9.0, "-9")]
    done = [settled("complete", f"0-{at}", "a", at=at) for at in (4.0, 6.0, 7.0)]
    refused = settled("complete", "0-9", "a", at=8.0, outcome="lost")
    records = Records([*done, refused], notes, [])
    assert last_fault(records) == 5.0
    assert completed_after(records, last_fault(records)) == 2
    records.faults.append(Fault(OUTAGE, 3.0, 6.5))
    assert completed_after(records, last_fault(records)) == 1


@pytest.mark.parametrize("tier", [LONG, SOAK], ids=lambda tier: tier.name)
def test_a_long_run_is_under_load_until_its_last_fault(tier: Tier) -> None:
    steps = [step for steps in plan(tier, 7, has_server=True).values() for step in steps]
    assert max(step.at for step in steps) < tier.loaded_until


def test_percentiles() -> None:
    assert percentile(range(1, 101), 99) == 99
    assert percentile([], 99) == 0.0


def test_one_seed_is_one_plan() -> None:
    assert plan(SHORT, 7, has_server=True) == plan(SHORT, 7, has_server=True)
    assert plan(SHORT, 7, has_server=True) != plan(SHORT, 8, has_server=True)
    kinds = [step.kind for steps in plan(SHORT, 7, has_server=True).values() for step in steps]
    assert kinds.count("kill") >= 10
    assert kinds.count("kill server") >= 3
    assert len(plan(LONG, 7, has_server=True)["workers"]) >= 900


@pytest.mark.parametrize("tier", [SHORT, LONG, SHORT.lasting(0.25)], ids=["short", "long", "part"])
def test_every_kind_of_fault_is_planned(tier: Tier) -> None:
    for_a_file = {"kill", "stop", "kill all", "fill", "kill in calm", "stop in calm"}
    for_a_server = for_a_file | {"kill server", "flap", "slow"}
    for has_server, expected in ((False, for_a_file), (True, for_a_server)):
        tracks = plan(tier, 7, has_server=has_server).values()
        assert {step.kind for steps in tracks for step in steps} == expected


def test_who_is_told_unavailable_without_a_fault() -> None:
    fault = Fault(OUTAGE, 4.0, 6.0)
    quiet = [sent("0-0", outcome="unavailable"), sent("0-1", outcome="ok")]
    met = [sent("0-2", outcome="unavailable", at=at) for at in (3.95, 5.0, 7.9)]
    assert told_unavailable([*quiet, *met], "enqueue", [fault]) == 1
    assert told_unavailable([*quiet, *met], "complete", [fault]) == 0
    assert latencies([*quiet, *met], "enqueue", [fault]) == [0.1]


def test_who_goes_home_after_the_work_was_not_stopped_under_load() -> None:
    notes = [Note("closed", "w0.1", 1.5, ""), Note("closed", "w1.1", 3.0, "")]
    records = Records([settled("complete", "0-0", "a", at=2.0)], notes, [])
    assert closed_under_load(records) == 1


# --- what happened, and what was planned -------------------------------------------------------


KEPT = Kept(
    tier=dataclasses.replace(SHORT, name="scale", requests=1),
    store="sqlite",
    seed=7,
    faults=Counter(kill=450),
    planned=Counter(kill=900),
    drained_at=9.0,
    lost_replies=3,
    torn_steps=0,
    crashes=(),
    seconds=12.5,
)


def outcome(
    calls: Sequence[Call] = (),
    notes: Sequence[Note] = (),
    kept: Kept = KEPT,
    faults: Sequence[Fault] = (),
    **picture: Any,
) -> Outcome:
    records = Records(list(calls), list(notes), list(faults))
    seen = Picture(**{"completed": (), "dead": (), **picture})
    chronicle = read_chronicle(records, TTL)
    return Outcome(
        **vars(kept),
        account=close(records, seen, chronicle, max_deaths=5),
        history=judge(records, seen, chronicle),
        records=records,
        picture=seen,
        said="",
    )


def shown(of: Outcome) -> dict[str, tuple[float, dict[str, float]]]:
    found: dict[str, tuple[float, dict[str, float]]] = {}

    def show(row: str, what: str, value: float, unit: str = "", **bound: float) -> None:
        found[f"{row} {what.removesuffix(f' ({of.store})')}"] = (value, bound)

    Figures(of, show).all()
    return found


def test_where_the_work_ends_before_the_plan_the_last_kills_may_be_missing() -> None:
    figures = shown(outcome())
    assert figures["F1 workers killed"] == (450, {"at_least": 810})
    assert figures["TIER-SCALE worker kills"] == (450, {"at_least": 810})


@pytest.mark.parametrize("tier", [SHORT, LONG])
@pytest.mark.parametrize("store", ["redis", "sqlite"])
def test_all_that_is_planned_must_have_happened(tier: Tier, store: str) -> None:
    """Of a run in which nothing was done, each kind of fault is shown, and breaks its bound."""
    nothing = dataclasses.replace(
        KEPT, tier=tier, store=store, faults=Counter(), planned=Counter(), lost_replies=0
    )
    short_of = {
        what: bound["at_least"]
        for what, (value, bound) in shown(outcome([sent("0-0")], kept=nothing)).items()
        if value < bound.get("at_least", 0)
    }
    kinds = {"F1 workers killed": 10, "F4 times all were killed together": 1}
    kinds |= {"F54 processes stopped": 1, "F54 processes stopped while the store is there": 1}
    kinds |= {"F54 processes stopped under load": 1, "F32 poison buried": 1}
    kinds |= {"F54 slowest stop while the store is there: times measured": 1}
    kinds |= {"F1 workers killed while the store is there": 1}
    kinds |= {"F1 what the dead held was ready again after: times measured": 1}
    if store == "redis":
        kinds |= {"F2 servers killed": 3, "F9 replies lost": 250, "F34 times it was full": 1}
        kinds |= {
            "F15 seconds of delays": 3,
            "F15 replies delayed": 1,
            "F17 seconds of flapping": 3,
        }
    else:
        kinds |= {"F43 times it was full": 1}
    assert kinds.keys() <= short_of.keys()
    assert all(short_of[what] >= least for what, least in kinds.items())


def test_what_the_machine_does_not_let_anybody_do_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    without = dataclasses.replace(KEPT, tier=SHORT, untried=("fill",))
    assert not any(what.startswith("F43") for what in shown(outcome(kept=without)))
    teller = Teller()
    tell(outcome(kept=without), lambda: None, teller)
    assert teller.left_out == ["F43"]
    assert "LEFT OUT: F43: this needs a file system of its own" in capsys.readouterr().out


def test_what_was_not_measured_breaks_its_bound() -> None:
    figures = shown(outcome(kept=dataclasses.replace(KEPT, tier=SHORT)))
    what = "F1 what the dead held was ready again after"
    assert figures[f"{what}: times measured"] == (0, {"at_least": 1})
    assert figures[what][0] > figures[what][1]["at_most"]


@pytest.mark.parametrize(("kind", "row"), [(FLAP, "F17"), (SLOW, "F15")])
def test_who_is_told_of_a_bad_network(kind: str, row: str) -> None:
    redis = dataclasses.replace(KEPT, tier=SHORT, store="redis")
    told = [sent("0-0", outcome="unavailable", at=at) for at in (1.0, 5.95, 7.0)]
    faults = [Fault(kind, 0.0, 6.0), Fault(OUTAGE, 6.0, 8.0)]
    found = shown(outcome(told, kept=redis, faults=faults))
    assert found[f"{row} errors told to callers"] == (1, {"exactly": 0})


def test_a_part_of_every_change_may_not_take_long() -> None:
    late = dataclasses.replace(KEPT, tier=SHORT, seconds=91.0)
    assert shown(outcome(kept=late))["TIER-SHORT took"] == (91.0, {"at_most": 90.0})


def test_a_backlog_is_not_judged_by_how_soon_it_is_drained() -> None:
    late = dataclasses.replace(KEPT, drained_at=1e6)
    other = dataclasses.replace(late, tier=dataclasses.replace(KEPT.tier, name="short"))
    assert "TIER-SCALE drained after the last fault" not in shown(outcome(kept=late))
    drained, bound = shown(outcome(kept=other))["TIER-SHORT drained after the last fault"]
    assert drained > bound["at_most"]


def test_without_kills_nobody_is_unlucky() -> None:
    what = "F32 innocents buried, killed a fifth time while alone"
    assert shown(outcome())[what] == (0, {"at_most": 0})
    processes = [f"w{number}.1" for number in range(51)]
    notes = [Note("born", process, 0.0, process) for process in processes]
    notes += [Note("killed", process, 1.0, "") for process in [*processes, "p0.1"]]
    assert shown(outcome(notes=notes))[what] == (0, {"at_most": 2})
    short = dataclasses.replace(KEPT, tier=dataclasses.replace(KEPT.tier, name="short"))
    assert shown(outcome(notes=notes, kept=short))[what] == (0, {"at_most": 13})


def test_who_is_told_unavailable_is_shown() -> None:
    calls = [sent("0-0", outcome="unavailable"), settled("complete", "0-1", "a", "unavailable")]
    figures = shown(outcome(calls))
    for op in ("enqueue", "complete"):
        what = f"TIER-SCALE {op}s told unavailable outside faults"
        assert figures[what] == (1, {"exactly": 0})


def test_what_was_refused_is_no_throughput() -> None:
    calls = [leased("0-0", "a", at=1.0)]
    done = [settled("complete", f"0-{n}", "a", at=float(n)) for n in range(1, 21)]
    lost = [settled("complete", f"1-{n}", "a", "lost", at=1.5) for n in range(200)]
    assert rate_of_others(outcome([*calls, *done, *lost])) == rate_of_others(outcome(calls + done))


async def test_what_found_nobody_did_not_happen(tmp_path: Path) -> None:
    pen = Pen(tmp_path / f"conductor{SUFFIX}", "conductor")
    processes = Processes(tmp_path, pen, tmp_path / "output")
    place = SQLitePlace(tmp_path, None)
    mischief = Mischief(SHORT, place, processes, pen, seed=1, patience=0.1)
    steps = [Step(0.0, kind) for kind in ("kill", "stop", "kill all", "fill")]
    await mischief.run(steps, time.monotonic())
    pen.close()
    assert mischief.done.total() == 0
    assert mischief.due == Counter(step.kind for step in steps)
    assert mischief.untried == {"fill"}


# --- closed once more --------------------------------------------------------------------------


def kept_run(folder: Path, *, completed: Sequence[str]) -> Path:
    folder.mkdir()
    pen = Pen(folder / f"w0{SUFFIX}", "w0.1")
    pen.end(pen.begin("enqueue", ["0-0"]), "ok")
    pen.whole("lease", ["0-0"], time.monotonic(), "ok", "a")
    pen.end(pen.begin("complete", ["0-0"], "a"), "ok")
    pen.close()
    picture = {"completed": completed, "dead": [], "queued": [], "stats": {}, "miscounted": {}}
    (folder / "picture.json").write_text(json.dumps(picture))
    harmless = Tier("short", 1, 1, 1, 1, 30.0, 3.0, 0.1, 0.1, share=0.0, kill_every=0.0)
    kept = dataclasses.replace(KEPT, tier=harmless, drained_at=time.monotonic())
    keep(kept, folder)
    assert read_kept(folder) == kept
    return folder


def test_a_kept_run_is_closed_once_more(tmp_path: Path) -> None:
    kept_run(tmp_path / "sqlite", completed=["0-0"])
    assert read_outcome(tmp_path / "sqlite").account.problems() == []
    assert read_picture(tmp_path / "sqlite" / "picture.json").buried_at == {}
    assert main(["--again", str(tmp_path)]) == HELD
    assert main(["--again", str(kept_run(tmp_path / "redis", completed=[]))]) == BROKEN
    assert main(["--again", str(tmp_path)]) == BROKEN


def test_nothing_was_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--again", str(tmp_path)])
    assert ended.value.code == BAD_USAGE
    assert "no run that came to its end" in capsys.readouterr().err


def test_a_part_of_a_tier_is_still_that_tier_and_says_how_much_of_it() -> None:
    half = SHORT.lasting(0.25)
    assert (half.name, half.share, half.requests) == ("short", 0.5, 2_500)
    assert SHORT.lasting(0.5) == SHORT
