"""When a host that fails is left alone: pure decisions over a small record.

The record is kept in the store, so that all processes of a run share it. Closed, it counts
failures; opened, it holds the instant until which nobody asks. From then on a few requests go
through, the probes: the first that succeeds closes it, one that fails opens it for longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from data_fetcher_core.checking import is_number, is_whole_number
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.showing import shown

_BUCKETS = 10
_LEAST, _MOST = 1e-3, 1e9


@dataclass(frozen=True, kw_only=True)
class BreakerOptions:
    """When it opens, for how long, and how many may try then."""

    failures: int = 10
    """So many in a row open it; 0 for a breaker that never opens."""
    share: float = 0.5
    """So does this share of failures among at least ``requests`` in ``window`` seconds."""
    requests: int = 20
    window: float = 30.0
    cooldown: float = 5.0
    """How long it stays open the first time; twice as long each time it opens again."""
    longest_cooldown: float = 60.0
    probes: int = 1

    def __post_init__(self) -> None:
        counts = {"failures": 0, "requests": 1, "probes": 1}
        for name, least in counts.items():
            value = getattr(self, name)
            if not is_whole_number(value, least):
                raise ConfigurationError(
                    f"{name} must be a whole number from {least} up, not {shown(value)}"
                )
        for name in ("share", "window", "cooldown", "longest_cooldown"):
            value = getattr(self, name)
            if not is_number(value, _LEAST, _MOST):
                raise ConfigurationError(
                    f"{name} must be a number from {_LEAST:g} to {_MOST:g}, not {shown(value)}"
                )

    def cooldown_at(self, level: int) -> float:
        return min(self.longest_cooldown, self.cooldown * 2.0 ** min(level - 1, 30))

    def bucket(self, now: float) -> int:
        """Which part of time an outcome is counted in."""
        return int(now * _BUCKETS / self.window)


@dataclass(frozen=True, slots=True)
class Counts:
    """Outcomes by part of time: how many were good, how many were not."""

    by_bucket: dict[int, tuple[int, int]] = field(default_factory=dict)

    def plus(self, bucket: int, good: int, bad: int) -> Counts:
        had_good, had_bad = self.by_bucket.get(bucket, (0, 0))
        return Counts({**self.by_bucket, bucket: (had_good + good, had_bad + bad)})

    def since(self, bucket: int) -> Counts:
        return Counts({b: c for b, c in self.by_bucket.items() if b > bucket})

    @property
    def good(self) -> int:
        return sum(good for good, _ in self.by_bucket.values())

    @property
    def bad(self) -> int:
        return sum(bad for _, bad in self.by_bucket.values())


@dataclass(frozen=True, slots=True)
class Breaker:
    """The record. ``open_until`` is 0 while it is closed."""

    streak: int = 0
    counts: Counts = field(default_factory=Counts)
    level: int = 0
    opened_at: float = 0.0
    open_until: float = 0.0

    @property
    def is_closed(self) -> bool:
        return self.open_until == 0.0

    def is_probe(self, leased_at: float) -> bool:
        """Whether a request that was leased then went out to try."""
        return not self.is_closed and leased_at >= self.open_until

    def seen_good(self, leased_at: float, now: float, options: BreakerOptions) -> Breaker:
        if self.is_probe(leased_at):
            return Breaker()
        if not self.is_closed:
            return self
        counts = self._counted(now, options, good=1, bad=0)
        return replace(self, streak=0, counts=counts)

    def seen_bad(self, leased_at: float, now: float, options: BreakerOptions) -> Breaker:
        if self.is_probe(leased_at):
            return self._opened(now, options)
        if not self.is_closed or not options.failures:
            return self
        counts = self._counted(now, options, good=0, bad=1)
        failing = replace(self, streak=self.streak + 1, counts=counts)
        return self._opened(now, options) if _is_too_much(failing, options) else failing

    def with_good(self, good: dict[int, int]) -> Breaker:
        """What this process saw go well and had not told yet."""
        counts = self.counts
        for bucket, count in good.items():
            counts = counts.plus(bucket, count, 0)
        return replace(self, counts=counts)

    def _counted(self, now: float, options: BreakerOptions, *, good: int, bad: int) -> Counts:
        bucket = options.bucket(now)
        return self.counts.since(bucket - _BUCKETS).plus(bucket, good, bad)

    def _opened(self, now: float, options: BreakerOptions) -> Breaker:
        level = self.level + 1
        return Breaker(level=level, opened_at=now, open_until=now + options.cooldown_at(level))

    def to_state(self) -> list[Any]:
        counts = [[bucket, *pair] for bucket, pair in sorted(self.counts.by_bucket.items())]
        return [self.streak, counts, self.level, self.opened_at, self.open_until]

    @classmethod
    def from_state(cls, state: list[Any]) -> Breaker:
        streak, counts, level, opened_at, open_until = state
        by_bucket = {bucket: (good, bad) for bucket, good, bad in counts}
        return cls(streak, Counts(by_bucket), level, opened_at, open_until)


def _is_too_much(breaker: Breaker, options: BreakerOptions) -> bool:
    bad, total = breaker.counts.bad, breaker.counts.good + breaker.counts.bad
    often = total >= options.requests and bad >= options.share * total
    return often or breaker.streak >= options.failures
