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


Event = Retried | Buried | LeasesLost | ConsumerReaped | LeasesReturned | HeartbeatMissed
Subscriber = Callable[[Event], None]


def guarded(subscriber: Subscriber) -> Subscriber:
    """The subscriber, with its own errors logged: what happened has happened all the same."""

    def tell(event: Event) -> None:
        try:
            subscriber(event)
        except Exception:  # noqa: BLE001
            _log.exception("a subscriber failed on %s", event)

    return tell


def log_event(event: Event) -> None:
    """The default subscriber: what costs a second delivery is a warning, the rest is told."""
    quiet = isinstance(event, Retried | LeasesReturned)
    _log.log(logging.INFO if quiet else logging.WARNING, "%s", event)
