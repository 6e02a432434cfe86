"""A history, looked up by what its events are about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tests.history_events import Event


class Book:
    """By request, by key, by step; and who was silent when."""

    def __init__(self, history: Iterable[Event]) -> None:
        self.history = list(history)
        self.of: dict[str, list[Event]] = defaultdict(list)
        self.silences: dict[str, list[Event]] = defaultdict(list)
        self.steps: dict[tuple[str, int], list[Event]] = defaultdict(list)
        self.keys: dict[str, list[Event]] = defaultdict(list)
        self.audited = False
        for event in self.history:
            self._file(event)
        self.seen = {name for name, events in self.of.items() if any(map(_is_seen, events))}
        # A request that was cancelled may have gone before anybody saw it.
        self.evidence = self.seen | {e.request for e in self.history if e.verb == "cancel"}

    def _file(self, event: Event) -> None:
        if event.verb == "silent":
            self.silences[event.who].append(event)
        elif event.verb == "audit":
            self.audited = True
        elif event.verb != "save":
            self.of[event.request].append(event)
        if event.step:
            self.steps[event.who, event.step].append(event)
        if event.key:
            self.keys[event.key].append(event)

    def is_there(self, event: Event) -> bool:
        """Whether it was seen, or the one whose key it shares."""
        return event.request in self.evidence or any(
            other.request in self.evidence for other in self.keys.get(event.key, ())
        )

    def was_silent(self, who: str, since: float, until: float) -> bool:
        """Whether it may have been taken for dead in between."""
        return any(
            silence.start < until and (silence.end is None or silence.end > since)
            for silence in self.silences[who]
        )


def _is_seen(event: Event) -> bool:
    return event.verb in {"lease", "found"}
