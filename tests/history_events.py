"""What was asked of a queue, and when: one line for each request's part in an operation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

# --- what is written down ----------------------------------------------------------------------

# Verbs of callers. "enqueue" also stands for a child that a settlement brings: then `token` is
# the lease that it was settled with.
SETTLEMENTS = frozenset({"complete", "release", "bury", "give_back", "drop", "progress"})
ENDINGS = frozenset({"complete", "drop"})
# "silent": a span in which nothing was heard of a consumer for so long that it may be taken for
# dead; without an end: it died. "save": a checkpoint. "found": looked up at the end, by an
# "audit" that saw everything.

DONE = "done"
NEW, DUPLICATE = "new", "duplicate"
# It did not happen: the lease was somebody else's, or there was no room.
REFUSED = "refused"
# Cancelled, killed, or no answer: it happened or it did not.
UNKNOWN = "unknown"
_HAPPENED = frozenset({DONE, NEW, DUPLICATE})


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history. ``step`` is the same for all that is done in one atomic step."""

    verb: str
    who: str
    start: float
    end: float | None = None
    outcome: str = UNKNOWN
    request: str = ""
    token: str = ""
    key: str = ""
    delay: float = 0.0
    step: int = 0
    attempts: int = 0
    deaths: int = 0
    value: int = 0

    @property
    def happened(self) -> bool:
        return self.outcome in _HAPPENED

    @property
    def may_have_happened(self) -> bool:
        return self.outcome != REFUSED


class Recorder:
    """Writes events down as they begin, and again as they end."""

    def __init__(
        self, now: Callable[[], float], write: Callable[[str], object] | None = None
    ) -> None:
        self._now = now
        self._write = write
        self.events: list[Event] = []

    def begin(self, verb: str, who: str, **fields: Any) -> int:
        """Its number, to end it with."""
        self.events.append(Event(verb, who, self._now(), **fields))
        return self._note(len(self.events) - 1)

    def end(self, number: int, outcome: str, **fields: Any) -> None:
        self.events[number] = replace(
            self.events[number], end=self._now(), outcome=outcome, **fields
        )
        self._note(number)

    def note(self, verb: str, who: str, outcome: str = DONE, **fields: Any) -> None:
        """What takes no time."""
        now = self._now()
        self.events.append(Event(verb, who, fields.pop("start", now), now, outcome, **fields))
        self._note(len(self.events) - 1)

    def _note(self, number: int) -> int:
        if self._write is not None:
            self._write(json.dumps([number, asdict(self.events[number])]) + "\n")
        return number


def read_lines(lines: Iterable[str]) -> list[Event]:
    """The events of one process; a last line that was torn by its death is left out."""
    latest: dict[int, Event] = {}
    for line in lines:
        if line.endswith("\n"):
            number, fields = json.loads(line)
            latest[number] = Event(**fields)
    return list(latest.values())


def shown(event: Event) -> str:
    """One readable line."""
    span = f"{event.start:11.6f} {'…' if event.end is None else f'{event.end:.6f}':>11}"
    details = [f"key={event.key}"] if event.key else []
    details += [f"token={event.token[8:16]}{event.token[-2:]}"] if event.token else []
    details += [f"delay={event.delay:g}"] if event.delay else []
    details += [f"step={event.step}"] if event.step else []
    details += [f"attempts={event.attempts}"] if event.attempts else []
    details += [f"deaths={event.deaths}"] if event.deaths else []
    details += [f"value={event.value}"] if event.value else []
    what = f"{event.who:<6} {event.verb:<9} {event.request:<14} {event.outcome:<9}"
    return f"{span}  {what} {' '.join(details)}".rstrip()
