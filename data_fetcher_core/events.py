"""What happened, as frozen values given to plain callables. Logs and metrics subscribe."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

_log = logging.getLogger("data_fetcher_core.queue")


@dataclass(frozen=True, slots=True)
class Retried:
    """A delivery failed; the request is tried again after ``delay`` seconds."""

    namespace: str
    request_id: str
    attempts: int
    delay: float
    error: str


@dataclass(frozen=True, slots=True)
class Buried:
    """A request became a dead letter in this process.

    What the store buries by itself, expired or poisoned, is in the stats and the dead letters.
    """

    namespace: str
    request_id: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class LeasesLost:
    """Leases of this process were taken back; their requests may be delivered again."""

    namespace: str
    request_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConsumerReaped:
    """A dead consumer's leases are ready again; each will be delivered once more."""

    namespace: str
    consumer: str
    leases: int


@dataclass(frozen=True, slots=True)
class LeasesReturned:
    """Leases that nobody in this process held any more were given back."""

    namespace: str
    leases: int


@dataclass(frozen=True, slots=True)
class HeartbeatMissed:
    """The store could not be told that this consumer lives."""

    namespace: str
    error: str


@dataclass(frozen=True, slots=True)
class StepsForgotten:
    """The store lacks at least so many steps of this process that it had acknowledged.

    It was restored from an older state, or a replica took over that had not heard the last of its
    master. Requests that were enqueued then are lost, and those that were settled are repeated.
    """

    namespace: str
    steps: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A request was answered, and is settled with what it gave."""

    namespace: str
    url: str
    lane: str
    status: int | None
    length: int
    children: int
    seconds: float


@dataclass(frozen=True, slots=True)
class NotFetched:
    """A request was settled without being made, and that is no failure."""

    namespace: str
    url: str
    reason: str


@dataclass(frozen=True, slots=True)
class Fed:
    """A locator was asked, and gave so many requests that were new; none means exhausted."""

    namespace: str
    locator: str
    given: int
    new: int


@dataclass(frozen=True, slots=True)
class LaneShut:
    """Nobody asks a host before so many seconds have passed."""

    namespace: str
    lane: str
    duration: float
    reason: str


@dataclass(frozen=True, slots=True)
class LaneRecovered:
    """A host answers again after it was shut for its failures."""

    namespace: str
    lane: str


@dataclass(frozen=True, slots=True)
class Paused:
    """Something is full. The run waits, and loses nothing."""

    namespace: str
    reason: str


@dataclass(frozen=True, slots=True)
class GoesOn:
    """There is room again after a pause."""

    namespace: str


Event = (
    Retried
    | Buried
    | LeasesLost
    | ConsumerReaped
    | LeasesReturned
    | HeartbeatMissed
    | StepsForgotten
    | Fetched
    | NotFetched
    | Fed
    | LaneShut
    | LaneRecovered
    | Paused
    | GoesOn
)
Subscriber = Callable[[Event], None]
_LEVELS: dict[type[Event], int] = {
    **dict.fromkeys((Fetched, NotFetched, Fed), logging.DEBUG),
    **dict.fromkeys((Retried, LeasesReturned, LaneRecovered, GoesOn), logging.INFO),
}


def guarded(subscriber: Subscriber) -> Subscriber:
    """The subscriber, with its own errors logged: what happened has happened all the same."""

    def tell(event: Event) -> None:
        try:
            subscriber(event)
        except Exception:  # noqa: BLE001
            _log.exception("a subscriber failed on %s", event)

    return tell


def log_event(event: Event) -> None:
    """The default subscriber: what a person should know of is a warning."""
    _log.log(_LEVELS.get(type(event), logging.WARNING), "%s", event)
