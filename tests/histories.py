"""What was asked of a queue and when, as plain events; and what such a history must never show.

An :class:`Event` is one request's part in one operation, with its start and its end. What never
came back has no end, and may have happened or not. :func:`check` gives the rules that a history
breaks; each is a thing that no queue with one atomic step per operation can do, whatever was
lost, killed or late on the way. :func:`account` is its balance.

Events come from anywhere: a simulation (``Recorder(loop.time)``), or processes that each write
lines to a file (``Recorder(time.monotonic, write=…)`` and :func:`read_lines`; the clock must be
one that all of them share).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.history_book import Book
from tests.history_events import (
    DONE,
    DUPLICATE,
    ENDINGS,
    NEW,
    REFUSED,
    SETTLEMENTS,
    UNKNOWN,
    Event,
    Recorder,
    read_lines,
    shown,
)

__all__ = [
    "DONE",
    "DUPLICATE",
    "NEW",
    "REFUSED",
    "RULES",
    "UNKNOWN",
    "Account",
    "Event",
    "Recorder",
    "Violation",
    "account",
    "check",
    "read_lines",
    "shown",
]


# --- what it must not show ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    request: str
    told: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.request or '(all)'}: {self.told}"


def check(history: Iterable[Event]) -> list[Violation]:
    """Every rule that it breaks."""
    book = Book(history)
    broken: list[Violation] = []
    for name, events in book.of.items():
        if not name:
            continue
        life = _Life(name, events, book)
        for rule in _RULES:
            broken += [Violation(_named(rule), name, told) for told in rule(life)]
    for whole in _WHOLE_RULES:
        broken += [Violation(_named(whole), name, told) for name, told in whole(book)]
    return broken


def _named(rule: Any) -> str:
    name: str = rule.__name__
    return name.strip("_").replace("_", " ")


class _Life:
    """All that happened to one request."""

    def __init__(self, name: str, events: Sequence[Event], book: Book) -> None:
        self.name = name
        self.book = book
        self.sent = [e for e in events if e.verb == "enqueue"]
        self.leases = [e for e in events if e.verb == "lease"]
        self.settlements = [e for e in events if e.verb in SETTLEMENTS]
        self.found = [e for e in events if e.verb == "found"]
        self.others = [e for e in events if e.verb in {"cancel", "requeue"}]
        self.by_token: dict[str, list[Event]] = defaultdict(list)
        for event in self.settlements:
            self.by_token[event.token].append(event)

    def done(self, verbs: frozenset[str] = SETTLEMENTS) -> list[Event]:
        return [e for e in self.settlements if e.outcome == DONE and e.verb in verbs]

    def completed(self) -> list[Event]:
        return [e for e in self.found if e.outcome == "completed"]

    def begun(self, *verbs: str) -> list[Event]:
        return [
            e for e in (*self.settlements, *self.others) if e.verb in verbs and e.may_have_happened
        ]


Told = Iterator[str]


def _appeared(life: _Life) -> Told:
    if not life.sent and (life.leases or life.found):
        yield "nobody sent it"


def _leased_before_it_was_sent(life: _Life) -> Told:
    sent_at = min((e.start for e in life.sent), default=0.0)
    for lease in life.leases:
        if lease.end is not None and lease.end < sent_at:
            yield f"leased by {lease.who} at {lease.end:.6f}, sent at {sent_at:.6f}"


def _settled_without_a_lease(life: _Life) -> Told:
    leased_at = {lease.token: lease.end for lease in life.leases}
    for event in life.settlements:
        at = leased_at.get(event.token)
        if event.outcome == DONE and (at is None or event.start < at):
            yield f"{event.verb} by {event.who} at {event.start:.6f}"


def _token_given_twice(life: _Life) -> Told:
    tokens = [lease.token for lease in life.leases]
    if len(set(tokens)) < len(tokens):
        yield f"of {len(tokens)} leases two have one token"


def _settled_twice(life: _Life) -> Told:
    for token, events in life.by_token.items():
        done = [e.verb for e in events if e.outcome == DONE]
        if len(done) > 1:
            yield f"{', '.join(done)} with the token {token}"


def _ended_twice(life: _Life) -> Told:
    ends = len(life.done(ENDINGS))
    if ends > 1 or len(life.completed()) > 1:
        yield f"{ends} were told that it is done; stored {len(life.completed())} times"
    if life.completed() and any(e.outcome == "dead" for e in life.found):
        yield "it is completed, and a dead letter"
    buried = len([e for e in life.done() if e.verb == "bury"])
    if buried > 1 + len(life.begun("requeue")):
        yield f"buried {buried} times"


def _came_back(life: _Life) -> Told:
    for end in life.done(ENDINGS):
        for lease in life.leases:
            if end.end is not None and lease.start > end.end:
                yield f"{end.verb} by {end.who}, then leased by {lease.who}"


def _two_holders(life: _Life) -> Told:
    """At one moment both had it and neither had begun to settle, and both hearts were heard."""
    holds = sorted(_holds(life), key=lambda hold: hold[:2])
    for (_, until, first), (since, _, second) in itertools.combinations(holds, 2):
        if since < until and not _is_excused(life.book, first, second, since):
            yield f"{first.who} and {second.who} at {since:.6f}"


def _holds(life: _Life) -> Iterator[tuple[float, float, Event]]:
    for lease in life.leases:
        ends = [e.start for e in life.by_token[lease.token]]
        if lease.end is not None and (ends or lease.outcome == DONE):
            yield lease.end, min(ends, default=lease.end), lease


def _is_excused(book: Book, first: Event, second: Event, at: float) -> bool:
    earlier = first.end or first.start
    return book.was_silent(first.who, earlier, at) or book.was_silent(second.who, earlier, at)


def _settled_by_a_zombie(life: _Life) -> Told:
    for event in life.done():
        mine = next((x for x in life.leases if x.token == event.token), None)
        for lease in life.leases:
            later = mine is not None and lease is not mine and lease.start >= (mine.end or 0.0)
            if later and lease.end is not None and lease.end < event.start:
                yield f"{event.verb} by {event.who} after {lease.who} had leased it"
    for found in life.completed():
        tried = life.by_token.get(found.token, [])
        if tried and all(e.outcome == REFUSED for e in tried):
            yield f"{tried[0].who} was refused, and it is stored as done"


def _completed_by_nobody(life: _Life) -> Told:
    for found in life.completed():
        if not any(e.verb == "complete" for e in life.by_token.get(found.token, [])):
            yield "stored as done, and nobody said so"


def _acknowledged_and_not_kept(life: _Life) -> Told:
    if not life.book.audited:
        return
    stored = {e.token for e in life.completed()}
    for event in life.done(frozenset({"complete"})):
        if event.token not in stored:
            yield f"{event.who} was told that it is done, and it is not stored as done"


def _lost(life: _Life) -> Told:
    accepted = bool(life.leases) or any(_is_accepted(e, life.book) for e in life.sent)
    gone = life.found or life.begun("cancel", "drop")
    if life.book.audited and accepted and not gone:
        yield "accepted, and nowhere at the end"


def _is_accepted(event: Event, book: Book) -> bool:
    """Whether it must be there under its own name: another may have brought its key before."""
    return event.outcome == NEW or (event.happened and not book.is_there(event))


def _early(life: _Life) -> Told:
    due = min((e.start + e.delay for e in life.sent), default=0.0)
    for lease in life.leases:
        if lease.end is not None and lease.end < due:
            yield f"leased at {lease.end:.6f}, due at {due:.6f}"
    for event in life.done(frozenset({"release"})):
        following = [x for x in life.leases if event.end is not None and x.start >= event.end]
        first = min((x.end for x in following if x.end is not None), default=None)
        if first is not None and first < event.start + event.delay:
            yield f"leased at {first:.6f}, released until {event.start + event.delay:.6f}"


def _charged_for_nothing(life: _Life) -> Told:
    """An attempt for each release and no more; a death for each silence of somebody."""
    silences = [s for spans in life.book.silences.values() for s in spans]
    for lease in life.leases:
        at = lease.end or lease.start
        tries = [e for e in life.begun("release") if e.start < at]
        if lease.attempts > len(tries):
            yield f"{lease.attempts} attempts after {len(tries)} releases"
        if lease.deaths > len([s for s in silences if s.start < at]):
            yield f"{lease.deaths} deaths, and nobody died"


_RULES: Sequence[Callable[[_Life], Told]] = (
    _appeared,
    _leased_before_it_was_sent,
    _settled_without_a_lease,
    _token_given_twice,
    _settled_twice,
    _ended_twice,
    _came_back,
    _two_holders,
    _settled_by_a_zombie,
    _completed_by_nobody,
    _acknowledged_and_not_kept,
    _lost,
    _early,
    _charged_for_nothing,
)


def _torn(book: Book) -> Iterator[tuple[str, str]]:
    """One step: with its children, or without; and what was refused left nothing behind."""
    for (who, _), events in book.steps.items():
        sent = [e for e in events if e.verb == "enqueue"]
        mine = [e for e in sent if len(book.of[e.request]) and _only_sent_by(book, e)]
        there = [e for e in mine if e.request in book.seen]
        if there and any(e.outcome == REFUSED for e in sent):
            yield there[0].request, f"{who} was refused, and it is there"
        missing = [e for e in sent if not book.is_there(e)]
        if missing and (there or any(e.happened for e in events)) and book.audited:
            yield missing[0].request, f"missing from a step of {who} that was done"


def _only_sent_by(book: Book, event: Event) -> bool:
    sent = (e for e in book.of[event.request] if e.verb == "enqueue")
    return all((e.who, e.step) == (event.who, event.step) for e in sent)


def _key_accepted_twice(book: Book) -> Iterator[tuple[str, str]]:
    for key, events in book.keys.items():
        sent = [e for e in events if e.verb == "enqueue"]
        new = [e for e in sent if e.outcome == NEW]
        names = {e.request for e in sent} & book.seen
        if len(new) > 1 or len(names) > 1:
            yield new[0].request if new else min(names), f"the key {key} was new {len(new)} times"
        if len(sent) == 1 and sent[0].outcome == DUPLICATE:
            yield sent[0].request, f"the key {key} was called a duplicate, and nobody else had it"


def _saved_apart(book: Book) -> Iterator[tuple[str, str]]:
    """A checkpoint says that everything up to it is in."""
    saves = [e for e in book.history if e.verb == "save"]
    for found in (e for e in book.of[""] if e.verb == "found" and e.outcome == "saved"):
        for value in range(1, found.value + 1):
            steps = [book.steps[e.who, e.step] for e in saves if e.value == value]
            if not any(_is_all_there(book, step) for step in steps):
                yield "", f"the checkpoint is {found.value}, and what belongs to {value} is missing"


def _is_all_there(book: Book, step: Sequence[Event]) -> bool:
    return all(book.is_there(e) for e in step if e.verb == "enqueue")


_WHOLE_RULES: Sequence[Callable[[Book], Iterator[tuple[str, str]]]] = (
    _torn,
    _key_accepted_twice,
    _saved_apart,
)
RULES = tuple(_named(rule) for rule in (*_RULES, *_WHOLE_RULES))


# --- the balance -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Account:
    """Σ: accepted = completed + dropped + cancelled + dead + queued, and nothing is lost."""

    accepted: int
    completed: int
    dead: int
    queued: int
    dropped: int
    lost: int
    deliveries: int


def account(history: Iterable[Event]) -> Account:
    book = Book(history)
    places: Mapping[str, set[str]] = defaultdict(set)
    for event in book.history:
        if event.verb == "found":
            places[event.outcome].add(event.request)
    found = places["completed"] | places["dead"] | places["queued"]
    gone = {e.request for e in book.history if e.verb in {"cancel", "drop"} and e.request}
    accepted = {e.request for e in book.history if e.verb == "enqueue" and _counts(e, book)}
    return Account(
        accepted=len(accepted),
        completed=len(places["completed"]),
        dead=len(places["dead"]),
        queued=len(places["queued"]),
        dropped=len((gone - found) & accepted),
        lost=len(accepted - found - gone),
        deliveries=sum(event.verb == "lease" for event in book.history),
    )


def _counts(event: Event, book: Book) -> bool:
    return event.request in book.evidence or _is_accepted(event, book)
