"""What is counted while a run goes on, and a picture of it at one instant.

A run tells thousands of events a second: to take note of one changes a few numbers, and nothing
is formatted before somebody looks.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from data_fetcher_core.cli.view.hosts import ShutHost, ShutHosts, SlowHost, SlowHosts
from data_fetcher_core.cli.view.pace import Pace
from data_fetcher_core.core import QueueStats
from data_fetcher_core.events import (
    Buried,
    Event,
    Fetched,
    GoesOn,
    LaneRecovered,
    LaneShut,
    NotFetched,
    Paused,
    Retried,
)

_MOST_FAILURES = 20
_MOST_HOSTS = 20


@dataclass(frozen=True, slots=True)
class Failed:
    """A delivery that failed so many seconds ago; ``is_final`` if it was the last."""

    ago: float
    text: str
    is_final: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """Where the run stands. Rates are ``None`` until they can be told."""

    elapsed: float = 0.0
    done: int = 0
    left: int = 0
    stats: QueueStats = QueueStats()  # noqa: RUF009 - a value
    recent_rate: float | None = None
    average_rate: float | None = None
    received: int = 0
    skipped: int = 0
    statuses: tuple[tuple[str, int], ...] = ()
    slowest: tuple[SlowHost, ...] = ()
    shut: tuple[ShutHost, ...] = ()
    failures: tuple[Failed, ...] = ()
    paused: str | None = None
    trouble: str | None = None

    @property
    def is_looked_at(self) -> bool:
        """Whether the store has told of anything yet: a run begins with nothing in it."""
        return self.stats.enqueued > 0

    @property
    def known(self) -> int:
        """What was found so far, done or not."""
        return self.done + self.left + self.stats.dead

    @property
    def seconds_left(self) -> float | None:
        """At this rate, and if nothing new is found."""
        if self.paused is not None or not self.is_looked_at:
            return None
        if self.left == 0:
            return 0.0
        return self.left / self.recent_rate if self.recent_rate else None


class Tally:
    """The numbers of one process, and what it last saw of the whole run.

    Events come in on the event loop while pictures may be taken in another thread.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = now()
        self._lock = threading.Lock()
        self._pace = Pace()
        self._settled = self._settled_then = self._skipped = self._received = 0
        self._statuses: Counter[int | None] = Counter()
        self._slow = SlowHosts()
        self._shut = ShutHosts()
        self._failures: deque[tuple[float, str, bool]] = deque(maxlen=_MOST_FAILURES)
        self._paused: str | None = None
        self._stats = QueueStats()
        self._trouble: str | None = None
        self._notes: Mapping[type, Callable[[Any], None]] = {
            Fetched: self._fetched,
            NotFetched: self._not_fetched,
            Retried: self._retried,
            Buried: self._buried,
            LaneShut: self._lane_shut,
            LaneRecovered: lambda event: self._shut.recovered(event.lane),
            Paused: self._pause,
            GoesOn: self._pause,
        }

    def note(self, event: Event) -> None:
        note = self._notes.get(type(event))
        if note is not None:
            with self._lock:
                note(event)

    def looked(self, stats: QueueStats) -> None:
        """What the store says of the whole run."""
        with self._lock:
            self._stats = stats
            self._settled_then = self._settled
            self._trouble = None
            self._pace.sample(self._now(), stats.completed)

    def could_not_look(self, trouble: str) -> None:
        with self._lock:
            self._trouble = trouble

    def picture(self) -> Picture:
        with self._lock:
            return self._take(self._now())

    def _take(self, now: float) -> Picture:
        # All counts are those of the last look; only rates take in what was settled since.
        stats = self._stats
        by_now = stats.completed + self._settled - self._settled_then
        is_paused = self._paused is not None
        return Picture(
            elapsed=now - self._began,
            done=stats.completed if stats.enqueued else self._settled,
            left=stats.size + stats.leased,
            stats=stats,
            recent_rate=None if is_paused else self._pace.recent(now, by_now),
            average_rate=None if is_paused else self._pace.average(now, by_now),
            received=self._received,
            skipped=self._skipped,
            statuses=_named(self._statuses),
            slowest=tuple(self._slow.slowest(_MOST_HOSTS)),
            shut=tuple(self._shut.still_shut(now)),
            failures=tuple(Failed(now - at, text, end) for at, text, end in self._failures),
            paused=self._paused,
            trouble=self._trouble,
        )

    def _fetched(self, event: Fetched) -> None:
        self._settled += 1
        self._received += event.length
        self._statuses[event.status] += 1
        self._slow.note(event.lane, event.seconds)

    def _not_fetched(self, _: NotFetched) -> None:
        self._settled += 1
        self._skipped += 1

    def _retried(self, event: Retried) -> None:
        self._failures.append((self._now(), event.error, False))

    def _buried(self, event: Buried) -> None:
        self._failures.append((self._now(), event.detail, True))

    def _lane_shut(self, event: LaneShut) -> None:
        now = self._now()
        self._shut.shut(event.lane, now + event.duration, event.reason, now)

    def _pause(self, event: Paused | GoesOn) -> None:
        self._paused = event.reason if isinstance(event, Paused) else None


def _named(statuses: Mapping[int | None, int]) -> tuple[tuple[str, int], ...]:
    """The most frequent first."""
    named = [("none" if status is None else str(status), n) for status, n in statuses.items()]
    return tuple(sorted(named, key=lambda status: (-status[1], status[0])))
