"""Why a request was delivered more than once: a cause that somebody noted, or none."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.chaos.ledger import ALL, DIED, OUTAGE, Call, Fault, Note, Records

KILLED, POISON, GIVEN_BACK, STOPPED, SILENCED = (
    "its process was killed",
    "a request in its process was poison",
    "it was given back",
    "its process was stopped",
    "its process was cut off for longer than a lease lasts",
)
AFTER_COMPLETION = "delivered again after it was completed"
TOKEN_TWICE = "one token was delivered twice"
WITHOUT_CAUSE = "delivered again without a cause"
_RETURNS = ("give_back", "release")


@dataclass
class Delivery:
    """One lease in a handler's hands, and what was noted of its end."""

    name: str
    token: str
    process: str
    at: float
    settlements: list[Call] = field(default_factory=list)

    @property
    def completed(self) -> bool:
        return any(call.op == "complete" and call.outcome == "ok" for call in self.settlements)

    @property
    def handled(self) -> bool:
        """Whether its handler came to its end."""
        return any(call.op == "complete" for call in self.settlements)

    @property
    def surely_kept(self) -> bool:
        """Whether nothing that was asked may have ended it."""
        return all(call.outcome == "full" for call in self.settlements)

    @property
    def surely_ended(self) -> bool:
        return any(call.outcome in {"ok", "lost"} for call in self.settlements)

    @property
    def refused(self) -> Call | None:
        """The call that was refused though nothing asked before it may have settled this."""
        for call in sorted(self.settlements, key=lambda call: call.start):
            if call.outcome != "full":
                return call if call.outcome == "lost" else None
        return None

    def given_back_before(self, instant: float) -> bool:
        """Whether it was, or may have been."""
        returns = [call for call in self.settlements if call.op in _RETURNS]
        return any(
            call.start <= instant and call.outcome in {"ok", "cancelled", "unavailable", DIED}
            for call in returns
        )


@dataclass(frozen=True)
class Repetition:
    name: str
    process: str
    at: float
    cause: str
    explained: bool


class Chronicle:
    """What befell processes and their way to the store."""

    def __init__(self, notes: Iterable[Note], faults: Iterable[Fault], lease_ttl: float) -> None:
        self.died: dict[str, tuple[float, str]] = {}
        self._closing: dict[str, float] = {}
        ordered = sorted(notes, key=lambda note: note.at)
        # When somebody first noted to have taken up what a process held.
        self.reaped = _first_reaped(ordered)
        for note in ordered:
            if note.kind in {"killed", "poison"}:
                cause = POISON if note.kind == "poison" else KILLED
                self.died.setdefault(note.process, (note.at, cause))
            elif note.kind == "closing":
                self._closing.setdefault(note.process, note.at)
        # In which nobody was heard for as long as a lease lasts.
        self.outages = [fault for fault in faults if _silences(fault, lease_ttl)]

    def was_cut_off(self, since: float, until: float) -> bool:
        return any(outage.start < until and since < outage.end for outage in self.outages)

    def cause_of(self, before: Delivery, after: Delivery) -> str | None:
        """Why what had been delivered before could be delivered after."""
        if before.given_back_before(after.at):
            return GIVEN_BACK
        died_at, cause = self.died.get(before.process, (None, ""))
        if died_at is not None and died_at <= after.at:
            return cause
        closing = self._closing.get(before.process)
        if closing is not None and closing <= after.at:
            return STOPPED
        return SILENCED if self.was_cut_off(before.at, after.at) else None


def _silences(fault: Fault, lease_ttl: float) -> bool:
    """Whether nobody could be heard for a whole lease: who flaps or is full answers meanwhile."""
    return fault.kind in {OUTAGE, ALL} and fault.end - fault.start >= lease_ttl


def _first_reaped(ordered: Iterable[Note]) -> dict[str, float]:
    """By process; only its own note tells by which name the others know it."""
    notes = [note for note in ordered if note.kind in {"born", "reaped"}]
    owners = {note.about: note.process for note in notes if note.kind == "born"}
    first: dict[str, float] = {}
    for note in notes:
        if note.kind == "reaped" and note.about in owners:
            first.setdefault(owners[note.about], note.at)
    return first


def deliveries_of(calls: Iterable[Call]) -> dict[str, list[Delivery]]:
    """By name, in order of time; each with how it ended."""
    by_name: dict[str, list[Delivery]] = defaultdict(list)
    by_token: dict[str, Delivery] = {}
    settlements: list[Call] = []
    for call in calls:
        if call.op == "lease":
            for name in call.names if call.end is not None else ():
                delivery = Delivery(name, call.token, call.process, call.end or call.start)
                by_name[name].append(delivery)
                by_token[call.token] = delivery
        elif call.token:
            settlements.append(call)
    for call in settlements:
        if call.token in by_token:
            by_token[call.token].settlements.append(call)
    for deliveries in by_name.values():
        deliveries.sort(key=lambda delivery: delivery.at)
    return by_name


def repetitions(deliveries: dict[str, list[Delivery]], chronicle: Chronicle) -> list[Repetition]:
    """Every delivery but the first of each request, with its cause."""
    found: list[Repetition] = []
    for several in deliveries.values():
        if len(several) > 1:
            found += _judge_all(several, chronicle)
    return found


def _judge_all(several: Sequence[Delivery], chronicle: Chronicle) -> list[Repetition]:
    return [_judge(before, after, chronicle) for before, after in itertools.pairwise(several)]


def _judge(before: Delivery, after: Delivery, chronicle: Chronicle) -> Repetition:
    lie = _lie(before, after)
    cause = lie or chronicle.cause_of(before, after)
    explained = lie is None and cause is not None
    return Repetition(after.name, after.process, after.at, cause or WITHOUT_CAUSE, explained)


def _lie(before: Delivery, after: Delivery) -> str | None:
    """What no cause can excuse."""
    if before.token == after.token:
        return TOKEN_TWICE
    return AFTER_COMPLETION if before.completed else None


def repeated_effects(deliveries: dict[str, list[Delivery]]) -> int:
    """How many handlers came to their end for a request for which one had before."""
    ends = (sum(delivery.handled for delivery in several) for several in deliveries.values())
    return sum(count - 1 for count in ends if count > 1)


def read_chronicle(records: Records, lease_ttl: float) -> Chronicle:
    return Chronicle(records.notes, records.faults, lease_ttl)
