"""How long things took, read from the ledgers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tests.chaos.explaining import Chronicle
from tests.chaos.ledger import Call, Fault, Note, Records

# After the server answers again, its clients need a moment to notice.
RECOVERY = 2.0
_ANSWERED = frozenset({"ok", "lost"})


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that ``share`` of a hundred do not exceed; 0 if there are none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)] if ordered else 0.0


def overlaps(start: float, end: float, faults: Iterable[Fault], recovery: float = 0.0) -> bool:
    return any(fault.start < end and start < fault.end + recovery for fault in faults)


def taken_up_after(records: Records, chronicle: Chronicle) -> list[float]:
    """From each death until what died with it was ready again, unless the store was away then."""
    died = chronicle.died
    pairs = [(died[name][0], at) for name, at in chronicle.reaped.items() if name in died]
    return [at - end for end, at in pairs if not overlaps(end, at, records.faults, RECOVERY)]


def answered_after(records: Records, kinds: Sequence[str]) -> list[float]:
    """From the end of each such fault until each process had its first answer that waited for it.

    More than one may be lost on the way to a caller; that is another fault. Who gave up long after
    the end, and was not answered before, has waited until then at least.
    """
    asked = [call for call in records.calls if call.op in {"enqueue", "complete"}]
    waits: list[float] = []
    for fault in records.faults:
        if fault.kind in kinds:
            others = [other for other in records.faults if other is not fault]
            waits += _first_answers(asked, fault, others).values()
    return waits


def _first_answers(
    calls: Iterable[Call], fault: Fault, others: Sequence[Fault]
) -> dict[str, float]:
    first: dict[str, float] = {}
    for call in calls:
        if call.end is None or not _tells(call, fault):
            continue
        waited = call.start < fault.end < call.end
        if waited and not overlaps(fault.end, call.end, others):
            wait = call.end - fault.end
            first[call.process] = min(wait, first.get(call.process, math.inf))
    return first


def _tells(call: Call, fault: Fault) -> bool:
    """Whether it shows when its process was back: who gave up sooner had no time left."""
    gave_up = call.outcome == "unavailable" and (call.end or 0.0) > fault.end + RECOVERY
    return gave_up or call.outcome in _ANSWERED


def latencies(calls: Iterable[Call], op: str, faults: Sequence[Fault]) -> list[float]:
    """Of calls that were answered, and met no fault of the store."""
    return [
        call.end - call.start
        for call in calls
        if call.op == op
        and call.end is not None
        and call.outcome == "ok"
        and not overlaps(call.start, call.end, faults, RECOVERY)
    ]


def told_unavailable(calls: Iterable[Call], op: str, faults: Sequence[Fault]) -> int:
    """How many were told so though they met no fault of the store, and none had just ended."""
    return sum(
        not any(_excuses(fault, call) for fault in faults)
        for call in calls
        if call.op == op and call.outcome == "unavailable"
    )


def _excuses(fault: Fault, call: Call) -> bool:
    end = call.end or call.start
    met = fault.start < end and call.start < fault.end
    return met or (fault.end <= call.start and end <= fault.end + RECOVERY)


def stops(notes: Iterable[Note], away: Sequence[Fault]) -> list[float]:
    """From the first word to a process that it should stop until it was gone.

    Who is told so while the store is away cannot say goodbye to it, and is left out.
    """
    told: dict[str, float] = {}
    took: list[tuple[float, float]] = []
    for note in sorted(notes, key=lambda note: note.at):
        if note.kind == "told to stop":
            told.setdefault(note.process, note.at)
        elif note.kind == "gone" and note.process in told and note.about == "0":
            took.append((told[note.process], note.at))
    return [gone - told for told, gone in took if not overlaps(told, gone, away, RECOVERY)]


def closed_under_load(records: Records) -> int:
    """How many ended in peace before all was done: whoever is stopped then just goes home."""
    done = [call.end for call in records.calls if call.op == "complete" and call.end is not None]
    until = max(done, default=0.0)
    return sum(note.kind == "closed" and note.at < until for note in records.notes)


def last_fault(records: Records) -> float:
    """When it was over."""
    deaths = [note.at for note in records.notes if note.kind == "killed"]
    return max([fault.end for fault in records.faults] + deaths, default=0.0)


def last_trouble(records: Records) -> float:
    """The last that was done to it: a fault, or a request that was sent."""
    arrivals = [call.end or call.start for call in records.calls if call.op == "enqueue"]
    return max([last_fault(records), *arrivals])


def completed_after(records: Records, instant: float) -> int:
    return sum(
        call.op == "complete" and call.outcome == "ok" and (call.end or 0.0) > instant
        for call in records.calls
    )
