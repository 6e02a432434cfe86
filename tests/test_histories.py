"""Every rule of a history finds the history that breaks it, and no rule minds a good one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest

from tests.histories import (
    DONE,
    DUPLICATE,
    NEW,
    REFUSED,
    RULES,
    UNKNOWN,
    Event,
    Recorder,
    account,
    check,
    read_lines,
    shown,
)


def sent(at: float = 0.0, outcome: str = NEW, **more: Any) -> Event:
    return Event("enqueue", "p0", at, at + 0.1, outcome, **{"request": "r", **more})


def leased(at: float, who: str = "a", token: str = "t1", **more: Any) -> Event:
    given: dict[str, Any] = {"request": "r", **more}
    return Event("lease", who, at, at + 0.1, DONE, token=token, **given)


def settled(
    verb: str, at: float, who: str = "a", token: str = "t1", outcome: str = DONE, **more: Any
) -> Event:
    given: dict[str, Any] = {"request": "r", **more}
    return Event(verb, who, at, at + 0.1, outcome, token=token, **given)


def silent(who: str, start: float, end: float | None = None) -> Event:
    return Event("silent", who, start, end)


def found(outcome: str, **more: Any) -> Event:
    given: dict[str, Any] = {"request": "r", **more}
    return Event("found", "audit", 99.0, 99.0, outcome, **given)


AUDIT = Event("audit", "audit", 99.0, 99.0, DONE)
COMPLETED = found("completed", token="t1")

GOOD: dict[str, Sequence[Event]] = {
    "done": [sent(), leased(1), settled("complete", 2), COMPLETED, AUDIT],
    "a silence explains a second holder": [
        sent(),
        leased(1),
        silent("a", 1.2, 9),
        leased(5, "b", "t2", deaths=1),
        settled("complete", 6, "b", "t2"),
        settled("complete", 7, outcome=REFUSED),
        found("completed", token="t2"),
        AUDIT,
    ],
    "no answer, then refused because it had happened": [
        sent(),
        leased(1),
        settled("complete", 2, outcome=UNKNOWN),
        settled("complete", 3, outcome=REFUSED),
        COMPLETED,
        AUDIT,
    ],
    "released, due later": [
        sent(),
        leased(1),
        settled("release", 2, delay=1.0),
        leased(3.1, "b", "t2", attempts=1),
        settled("bury", 4, "b", "t2"),
        found("dead"),
        AUDIT,
    ],
    "of two with one key one is there": [
        sent(key="k"),
        sent(key="k", request="other", outcome=DUPLICATE),
        leased(1),
        settled("complete", 2),
        COMPLETED,
        AUDIT,
    ],
    "an enqueue that nobody heard of again, and that did not happen": [
        sent(outcome=UNKNOWN, step=1),
        sent(outcome=UNKNOWN, step=1, request="other"),
        AUDIT,
    ],
    "cancelled before it was seen": [
        sent(),
        Event("cancel", "a", 1.0, 1.1, DONE, request="r"),
        AUDIT,
    ],
    "of a step that may not have been done one was cancelled": [
        sent(outcome=UNKNOWN, step=1),
        sent(outcome=UNKNOWN, step=1, request="other"),
        Event("cancel", "a", 1.0, 1.1, DONE, request="r"),
        AUDIT,
    ],
    "buried, requeued, buried": [
        sent(),
        leased(1),
        settled("bury", 2),
        Event("requeue", "a", 3.0, 3.1, DONE, request="r"),
        leased(4, "b", "t2"),
        settled("bury", 5, "b", "t2"),
        found("dead"),
        AUDIT,
    ],
    "nothing was looked up at the end": [sent(), leased(1)],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_breaks_no_rule(name: str) -> None:
    assert check(GOOD[name]) == []


BAD: dict[str, Sequence[Event]] = {
    "appeared": [leased(1), settled("complete", 2), COMPLETED, AUDIT],
    "leased before it was sent": [sent(5), leased(1)],
    "settled without a lease": [sent(), settled("complete", 2)],
    "token given twice": [sent(), leased(1), silent("a", 1.2, 2), leased(3, "b")],
    "settled twice": [sent(), leased(1), settled("release", 2), settled("give_back", 3)],
    "ended twice": [
        sent(),
        leased(1),
        settled("complete", 2),
        leased(2, "b", "t2"),
        settled("complete", 3, "b", "t2"),
    ],
    "came back": [sent(), leased(1), settled("complete", 2), leased(5, "b", "t2")],
    "two holders": [
        sent(),
        leased(1),
        leased(2, "b", "t2"),
        settled("give_back", 3, outcome=UNKNOWN),
        settled("give_back", 4, "b", "t2", outcome=UNKNOWN),
    ],
    "settled by a zombie": [
        sent(),
        leased(1),
        silent("a", 1.2, 5),
        leased(3, "b", "t2", deaths=1),
        settled("complete", 6),
    ],
    "completed by nobody": [sent(), leased(1), COMPLETED, AUDIT],
    "acknowledged and not kept": [sent(), leased(1), settled("complete", 2), found("dead"), AUDIT],
    "lost": [sent(), AUDIT],
    "early": [sent(delay=10.0), leased(5)],
    "charged for nothing": [sent(), leased(1, attempts=1)],
    "torn": [
        sent(step=1),
        sent(step=1, request="other", outcome=UNKNOWN),
        leased(1),
        settled("complete", 2),
        COMPLETED,
        AUDIT,
    ],
    "key accepted twice": [sent(key="k"), sent(1, key="k")],
    "saved apart": [
        sent(outcome=UNKNOWN, step=1),
        Event("save", "p0", 0.0, None, value=1, step=1),
        found("saved", request="", value=1),
        AUDIT,
    ],
}
MORE_BAD: Sequence[tuple[str, Sequence[Event]]] = [
    ("ended twice", [sent(), leased(1), settled("complete", 2), COMPLETED, COMPLETED]),
    ("ended twice", [sent(), leased(1), settled("complete", 2), COMPLETED, found("dead")]),
    ("ended twice", [sent(), settled("bury", 1), settled("bury", 2, token="t2")]),
    (
        "settled by a zombie",
        [sent(), leased(1), settled("complete", 2, outcome=REFUSED), COMPLETED],
    ),
    ("lost", [sent(), leased(1), settled("release", 2), AUDIT]),
    ("early", [sent(), leased(1), settled("release", 2, delay=9.0), leased(4, "b", "t2")]),
    ("charged for nothing", [sent(), leased(1, deaths=1)]),
    ("torn", [sent(outcome=REFUSED, step=1), leased(1)]),
    ("key accepted twice", [sent(key="k", outcome=DUPLICATE)]),
    (
        "key accepted twice",
        [
            sent(key="k", outcome=UNKNOWN),
            sent(key="k", request="o"),
            leased(1),
            leased(1, request="o"),
        ],
    ),
    (
        "two holders",
        [
            sent(),
            leased(1),
            silent("a", 0.0, 0.9),
            leased(2, "b", "t2"),
            settled("drop", 3),
            settled("drop", 3, "b", "t2", outcome=REFUSED),
        ],
    ),
]


def test_there_is_a_bad_history_for_every_rule() -> None:
    assert set(BAD) == set(RULES)


@pytest.mark.parametrize(("rule", "history"), [*BAD.items(), *MORE_BAD])
def test_a_bad_history_is_found_out(rule: str, history: Sequence[Event]) -> None:
    assert rule in {violation.rule for violation in check(history)}


def test_the_account_of_a_history() -> None:
    history = [
        *(sent(request=name) for name in ("done", "dead", "queued", "dropped", "lost")),
        sent(request="refused", outcome=REFUSED),
        leased(1, request="done"),
        settled("drop", 2, request="dropped"),
        found("completed", request="done", token="t1"),
        found("dead", request="dead"),
        found("queued", request="queued"),
        AUDIT,
    ]
    balance = account(history)
    assert (balance.accepted, balance.deliveries) == (5, 1)
    assert (balance.completed, balance.dead, balance.queued, balance.dropped, balance.lost) == (
        1,
        1,
        1,
        1,
        1,
    )


def test_what_a_process_wrote_until_it_died_is_read_again() -> None:
    now, lines = 0.0, []

    def write(line: str) -> None:
        lines.append(line)

    recorder = Recorder(lambda: now, write)
    first = recorder.begin("enqueue", "p", request="a")
    recorder.begin("enqueue", "p", request="b")
    now = 1.0
    recorder.end(first, NEW)
    recorder.note("lease", "p", request="a", start=0.5)
    lines.append(lines[-1][:20])
    assert read_lines(lines) == recorder.events
    assert [(e.request, e.start, e.end, e.outcome) for e in recorder.events] == [
        ("a", 0.0, 1.0, NEW),
        ("b", 0.0, None, UNKNOWN),
        ("a", 0.5, 1.0, DONE),
    ]


def test_events_and_what_is_broken_are_plain() -> None:
    event = sent(step=3, key="k", delay=1.0)
    assert Event(**json.loads(json.dumps(asdict(event)))) == event
    assert "enqueue" in shown(event)
    (violation,) = check([sent(delay=10.0), leased(5)])
    assert str(violation).startswith("early: r: leased at")
