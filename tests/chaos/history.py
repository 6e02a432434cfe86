"""The ledgers of a run as a history: each request's part in every call, from its start to its end.

It is held to the rules of :mod:`tests.histories`: sent before it was leased, leased before it was
settled, settled once for each token, never in two hands at a time while both hearts were heard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.account import Picture
from tests.chaos.explaining import Chronicle
from tests.chaos.ledger import Call, Records
from tests.chaos.names import Block, block_of, children_of
from tests.histories import DONE, REFUSED, UNKNOWN, Event, Violation, check, shown

# Whoever hears anything else does not know whether it happened.
_OUTCOMES = {"ok": DONE, "lost": REFUSED, "full": REFUSED}
_AUDITOR = "auditor"
_AUDIT = Event("audit", _AUDITOR, 0.0, 0.0, DONE)
_SHOWN = 5


@dataclass
class Judgement:
    """How many parts of calls were judged, and what cannot be among them."""

    parts: int = 0
    violations: list[Violation] = field(default_factory=list)
    # The first of them, with what is known of their requests.
    told: list[str] = field(default_factory=list)

    def add(self, events: Sequence[Event]) -> None:
        self.parts += sum(bool(event.step) for event in events)
        for violation in check(events):
            if len(self.violations) < _SHOWN:
                self.told.append(_tell(violation, events))
            self.violations.append(violation)


def _tell(violation: Violation, events: Sequence[Event]) -> str:
    known = sorted(
        (event for event in events if event.request == violation.request),
        key=lambda event: event.start,
    )
    return "\n    ".join([str(violation), *map(shown, known)])


def judge(records: Records, picture: Picture, chronicle: Chronicle) -> Judgement:
    """Block by block, which share no step: so it takes as long as the ledgers are."""
    judgement = Judgement()
    asked, found = _asked(records.calls), _found(picture)
    for block in dict.fromkeys([*asked, *found]):
        calls = asked.get(block, [])
        tokens = _tokens_of_completions(calls)
        places = [_event(place, tokens) for place in found.get(block, ())]
        judgement.add([*_events_of(calls, chronicle), *places, _AUDIT])
    return judgement


# --- what was asked ----------------------------------------------------------------------------


def _asked(calls: Sequence[Call]) -> dict[Block, list[Call]]:
    blocks: dict[Block, list[Call]] = defaultdict(list)
    for call in calls:
        if call.names:
            blocks[block_of(call.names[0])].append(call)
    return blocks


def _events_of(calls: Sequence[Call], chronicle: Chronicle) -> Iterator[Event]:
    for step, call in enumerate(calls, start=1):
        yield from _parts(call, step)
    yield from _given_up(calls, chronicle)
    for who in {call.process for call in calls} if chronicle.outages else ():
        yield from (Event("silent", who, one.start, one.end) for one in chronicle.outages)


def _parts(call: Call, step: int) -> Iterator[Event]:
    outcome = _OUTCOMES.get(call.outcome, UNKNOWN)

    def part(verb: str, name: str) -> Event:
        token, span = call.token, (call.start, call.end)
        return Event(verb, call.process, *span, outcome, name, token, step=step)

    for name in call.names:
        yield part(call.op, name)
        if call.op == "complete":
            yield from (part("enqueue", child) for child in children_of(name))


def _given_up(calls: Sequence[Call], chronicle: Chronicle) -> Iterator[Event]:
    """Who dies is silent from then on, and had in its hands till then what it never settled."""
    settled = {call.token for call in calls if call.op != "lease"}
    for call in calls:
        if call.op == "lease" and call.token not in settled and call.process in chronicle.died:
            died_at, _ = chronicle.died[call.process]
            name, token = call.names[0], call.token
            yield Event("give_back", call.process, died_at, request=name, token=token)


# --- what was found ----------------------------------------------------------------------------

_Place = tuple[str, str]


def _found(picture: Picture) -> dict[Block, list[_Place]]:
    """Where each request is at the end."""
    blocks: dict[Block, list[_Place]] = defaultdict(list)
    dead = [name for name, _, _ in picture.dead]
    for place, names in (
        ("completed", picture.completed),
        ("dead", dead),
        ("queued", picture.queued),
    ):
        for name in names:
            blocks[block_of(name)].append((place, name))
    return blocks


def _event(where: _Place, tokens: Mapping[str, str]) -> Event:
    place, name = where
    token = tokens.get(name, "") if place == "completed" else ""
    return Event("found", _AUDITOR, 0.0, 0.0, place, name, token)


def _tokens_of_completions(calls: Sequence[Call]) -> dict[str, str]:
    """With which lease a request was completed: the store does not say. By who was told that it
    is, or else by one who does not know."""
    tokens: dict[str, str] = {}
    for call in calls:
        outcome = _OUTCOMES.get(call.outcome, UNKNOWN)
        if call.op != "complete" or outcome == REFUSED:
            continue
        for name in call.names:
            if outcome == DONE or name not in tokens:
                tokens[name] = call.token
    return tokens
