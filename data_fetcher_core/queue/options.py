"""The options of a queue: one table, checked at the door."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

from data_fetcher_core.checking import is_number, is_whole_number
from data_fetcher_core.core import PRIORITY_LABELS, Priority
from data_fetcher_core.deadlines import Deadline, strictly, within
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.queue.records import MOST_COUNTED
from data_fetcher_core.retry import FixedDelays, RetryPolicy
from data_fetcher_core.showing import shown

_LARGEST = 2**31 - 1
_LONGEST = 10 * 365 * 86_400.0
_SHARE_OF_LEASE = 0.8


@dataclass(frozen=True, kw_only=True)
class QueueOptions:
    """How a queue behaves. Durations are seconds.

    Those marked *shared* are stored by whoever opens the run first. Who opens it later and names
    another value is refused, or changes it for all with ``update=True``; a lane that cannot be
    served at that moment learns of it with its next move. With ``max_attempts`` everybody goes on
    as it was opened.
    """

    max_attempts: int = 4
    """Shared. How many deliveries may fail before a request is buried."""
    max_deaths: int = 5
    """Shared. How many processes a request may take with it before it is buried as poison."""
    retry: RetryPolicy = field(default_factory=FixedDelays)
    """How long to wait after a failure: 1, 5, then 30 seconds."""
    lease_ttl: float = 30.0
    """How long a consumer may be silent before its leases are taken from it.

    Its name tells the others: each is judged by its own.
    """
    op_timeout: float = 10.0
    """How long one operation may take, repeats included, before it raises StoreUnavailable.

    An enqueue takes four fifths of ``lease_ttl`` at most: see ``patience_for``.
    """
    capacity: int = 0
    """Shared. How many requests may wait; 0 for no bound."""
    max_keyed: int = 0
    """Shared. How many requests with a key may ever enter, later ones are left out; 0 for all."""
    on_full: Literal["wait", "raise"] = "wait"
    """Whether enqueue() waits for room or raises QueueFull."""
    fair: bool = True
    """Whether lanes take turns. If not, all requests stand in one line."""
    lane_interval: float = 0.0
    """Shared. The least time between two leases of a lane; 0 for none."""
    lane_burst: int = 0
    """Shared. How many leases of a lane may come early, once in a while."""
    lane_concurrency: int = 0
    """Shared. How many requests of a lane may be in flight; 0 for no bound."""
    ageing_step: float = 60.0
    """Shared. The head start of a priority level: what waits that much longer goes first."""
    critical_burst: int = 0
    """Shared. After so many CRITICAL requests of a lane in a row, one other goes; 0 for never."""
    expected_keys: int = 1_000_000
    """Shared, and fixed. About how many keys a run will see; only Redis needs to know."""
    dead_retention: float = 0.0
    """How long dead letters are kept; 0 for ever."""
    compress_over: int = 4_096
    """Bodies of more bytes than this are compressed; 0 for none."""
    labels: Mapping[str, Priority] = field(default_factory=lambda: dict(PRIORITY_LABELS))
    """The names that may be used for a priority."""

    given: frozenset[str] = field(init=False, repr=False, compare=False)

    def __new__(cls, **given: Any) -> Self:
        """Remember which options were named: only those are compared with a stored run."""
        self = super().__new__(cls)
        object.__setattr__(self, "given", frozenset(given))
        return self

    def __post_init__(self) -> None:
        for name in _COUNTS:
            _check_count(name, getattr(self, name))
        for name in _DURATIONS:
            _check_duration(name, getattr(self, name), positive=name in _POSITIVE)
        if self.on_full not in ("wait", "raise"):
            raise ConfigurationError(
                f"on_full must be 'wait' or 'raise', not {shown(self.on_full)}"
            )
        if not isinstance(self.fair, bool):
            raise ConfigurationError(f"fair must be True or False, not {shown(self.fair)}")
        if not callable(getattr(self.retry, "decide", None)):
            raise ConfigurationError(
                f"retry must be a policy with decide(), not {shown(self.retry)}"
            )
        _check_labels(self.labels)

    def patience_for(self, verb: str) -> tuple[float, Callable[[float], Deadline]]:
        """How long an operation is repeated, and how each attempt is bounded.

        What a consumer has asked is forgotten with it, once it was silent for ``lease_ttl``. An
        addition that is repeated after that would be taken for another one; a lease is known by
        its token, and everything else may be done twice.
        """
        if verb == "add":
            return min(self.op_timeout, _SHARE_OF_LEASE * self.lease_ttl), strictly
        return self.op_timeout, within

    def shared(self) -> dict[str, str]:
        """The shared options as the store keeps them: whole numbers, durations in µs."""
        return {name: _stored(name, getattr(self, name)) for name in SHARED}

    def shared_and_given(self) -> list[str]:
        return [name for name in SHARED if name in self.given]


SHARED = (
    "max_attempts",
    "max_deaths",
    "capacity",
    "max_keyed",
    "lane_interval",
    "lane_burst",
    "lane_concurrency",
    "ageing_step",
    "critical_burst",
    "expected_keys",
)
_DURATIONS = ("lease_ttl", "op_timeout", "lane_interval", "ageing_step", "dead_retention")
_POSITIVE = ("lease_ttl", "op_timeout")
_COUNTS = tuple(f.name for f in fields(QueueOptions) if f.type == "int")
_PRIORITIES = frozenset(map(int, Priority))
_LEAST = {"max_attempts": 1, "max_deaths": 1, "expected_keys": 1}
# What is counted in the request itself is never more than that.
_MOST = {"max_attempts": MOST_COUNTED, "max_deaths": MOST_COUNTED}


def agree(stored: Mapping[str, str], options: QueueOptions) -> None:
    """Raise where a named option differs from what the run was begun with."""
    offered = options.shared()
    for name in options.shared_and_given():
        if stored[name] != offered[name]:
            raise ConfigurationError(
                f"this run has {name}={_shown(name, stored[name])}, and {name}="
                f"{_shown(name, offered[name])} was given: leave it out to take what is stored, "
                "or open with update=True to change it for everybody"
            )


def _stored(name: str, value: float) -> str:
    return str(round(value * 1e6) if name in _DURATIONS else int(value))


def _shown(name: str, stored: str) -> str:
    return f"{int(stored) / 1e6:g}" if name in _DURATIONS else stored


def _check_count(name: str, value: object) -> None:
    least, most = _LEAST.get(name, 0), _MOST.get(name, _LARGEST)
    if not is_whole_number(value, least, most):
        raise ConfigurationError(
            f"{name} must be a whole number from {least} to {most}, not {shown(value)}"
        )


def _check_duration(name: str, value: object, *, positive: bool) -> None:
    if not is_number(value, 0, _LONGEST) or (positive and value == 0):
        above = "above 0" if positive else "from 0 up"
        raise ConfigurationError(
            f"{name} must be a number of seconds {above}, at most {_LONGEST:g}, not {shown(value)}"
        )


def _check_labels(labels: object) -> None:
    if not isinstance(labels, Mapping):
        raise ConfigurationError(f"labels must map names to priorities, not be {shown(labels)}")
    for name, priority in labels.items():
        known = is_whole_number(priority) and priority in _PRIORITIES
        if not isinstance(name, str) or not known:
            raise ConfigurationError(
                f"labels must map names to a Priority, 1 to 6, not {shown(name)} to "
                f"{shown(priority)}"
            )


def microseconds(seconds: float) -> int:
    """A duration as stores count it, never shorter than asked."""
    return math.ceil(seconds * 1e6)
