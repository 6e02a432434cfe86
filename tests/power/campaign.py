"""Record after record, cut after cut, until there are enough of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.evidence import Evidence
from tests.power.cuts import Cut, cuts
from tests.power.record import Record, record
from tests.power.trace import NONE
from tests.power.verdict import Judge, Outcome, Verdict

FAULT = "F45"
_PER_RECORD = 600
_SHOWN = 5
# Stores and disks that are broken on purpose: each must be found out.
BROKEN = ("no-sync", "two-steps", "lying disk")
# No fault of the store: syncs fail now and then, and must do no harm.
FAILING = "failing syncs"

Tell = Callable[["Tally", int], None]


@dataclass
class Tally:
    """What came of the cuts of one kind."""

    synchronous: str
    on_purpose: str = ""
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    records: int = 0
    events: int = 0
    acknowledged: int = 0
    undoing: int = 0
    most_undone: int = 0
    bad: list[Verdict] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return f"{self.synchronous}, {self.on_purpose}" if self.on_purpose else self.synchronous

    @property
    def cuts(self) -> int:
        return self.outcomes.total()

    @property
    def broken(self) -> int:
        return self.cuts - self.outcomes[Outcome.HELD]

    def add(self, verdict: Verdict) -> None:
        self.outcomes[verdict.outcome] += 1
        if verdict.outcome is not Outcome.HELD:
            self.bad.append(verdict)
        else:
            self.undoing += verdict.undone > 0
            self.most_undone = max(self.most_undone, verdict.undone)

    def begin(self, recorded: Record) -> None:
        self.records += 1
        self.events += len(recorded.events)
        self.acknowledged += len(recorded.states)


async def run(
    synchronous: str, wanted: int, seed: int, tell: Tell = lambda *_: None, *, broken: str = ""
) -> Tally:
    """At least so many cuts, over as many records as they need. ``broken`` is why, if they are."""
    tally = Tally(synchronous, broken)
    judge = Judge(may_undo=synchronous == "NORMAL")
    most = min(_PER_RECORD, max(100, wanted // 3))
    while tally.cuts < wanted:
        number = seed + tally.records
        failing = _failing(number) if broken == FAILING else NONE
        recorded = record(number, synchronous, broken=broken, failing=failing)
        tally.begin(recorded)
        for cut in cuts(recorded, most, ignore_syncs=broken == "lying disk"):
            tally.add(await judge.judge(cut))
            tell(tally, wanted)
    return tally


def _failing(seed: int) -> range:
    """Which syncs of each thread fail: a few in a row, early enough to be reached."""
    dice = random.Random(seed)
    first = dice.randint(6, 25)
    return range(first, first + dice.randint(0, 6) + 1)


def show_failing(shows: Evidence, tally: Tally, wanted: int) -> None:
    shows("F44", "cut points after failed syncs, no two alike", tally.cuts, at_least=wanted)
    shows("F44", "of them lost, corrupt, half-done or refused", tally.broken, exactly=0)


def show(shows: Evidence, tally: Tally, wanted: int) -> None:
    """The figures of a tally, each held to its bound."""
    kind = f"synchronous={tally.synchronous}: "
    count = tally.outcomes
    shows(FAULT, kind + "refused though sound", count[Outcome.REFUSED], exactly=0)
    shows(FAULT, kind + "corrupt", count[Outcome.CORRUPT], exactly=0)
    shows(FAULT, kind + "half-done, or as it never was", count[Outcome.HALF], exactly=0)
    shows(FAULT, kind + "cut points, no two alike", tally.cuts, at_least=wanted)
    if tally.synchronous == "NORMAL":
        shows(FAULT, kind + "went back to an earlier commit", tally.undoing, at_least=1)
    else:
        shows(FAULT, kind + "with acknowledged work lost", count[Outcome.LOST], exactly=0)


def keep(cut: Cut, directory: Path) -> Path:
    """Leave the files of a cut where they can be looked at."""
    place = directory / f"{cut.record.name}-{cut.event}-{cut.variant}".replace(" ", "-")
    place.mkdir(parents=True, exist_ok=True)
    for name, content in cut.files.items():
        (place / name).write_bytes(content)
    return place


def described(tally: Tally) -> str:
    """For people."""
    undone = f"; {tally.undoing} went back, by {tally.most_undone} commits at most"
    lines = [
        f"synchronous={tally.kind}: {tally.cuts} cut points in {tally.records} records of "
        f"{tally.events} events and {tally.acknowledged} commits: {tally.broken} broken"
        + (undone if tally.undoing else "")
    ]
    lines += [f"  {one.outcome}: {one.cut}: {one.detail}" for one in tally.bad[:_SHOWN]]
    return "\n".join(lines)
