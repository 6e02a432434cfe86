"""What to do about a failure: pure policies that answer with a decision."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from data_fetcher_core.checking import is_number
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.showing import shown

# A store counts no longer delays than a century.
_LONGEST = 100 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class RetryIn:
    """Try again after ``delay`` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class Bury:
    """Do not try again."""

    detail: str


Decision = RetryIn | Bury


class RetryPolicy(Protocol):
    """Decides after a failed delivery."""

    def decide(self, attempts: int, error: BaseException | None) -> Decision:
        """``attempts`` counts the failed deliveries, this one included: 1 after the first."""


@dataclass(frozen=True, slots=True)
class FixedDelays:
    """A delay for each attempt; the last one stands for all that follow."""

    delays: tuple[float, ...] = (1.0, 5.0, 30.0)

    def __post_init__(self) -> None:
        listed = isinstance(self.delays, tuple | list)
        if not listed or not self.delays or not all(map(_is_duration, self.delays)):
            raise ConfigurationError(
                f"delays must be one or more numbers of seconds from 0 up, not {shown(self.delays)}"
            )

    def decide(self, attempts: int, error: BaseException | None) -> Decision:
        return RetryIn(self.delays[min(attempts, len(self.delays)) - 1])


@dataclass(frozen=True, slots=True)
class Exponential:
    """``first`` seconds, then ``factor`` times as long each time, at most ``most``.

    ``jitter`` is the share of the delay that is left to chance: 0 for none, 1 for all of it.
    """

    first: float = 1.0
    factor: float = 2.0
    most: float = 300.0
    jitter: float = 0.5
    chance: Callable[[], float] = field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        for name in ("first", "factor", "most", "jitter"):
            if not _is_duration(value := getattr(self, name)):
                raise ConfigurationError(f"{name} must be a number from 0 up, not {shown(value)}")
        if not (self.first <= self.most and self.factor >= 1):
            raise ConfigurationError(
                f"first must not exceed most, and factor must be at least 1: {self!r}"
            )
        if self.jitter > 1:
            raise ConfigurationError(f"jitter must be from 0 to 1, not {self.jitter!r}")

    def decide(self, attempts: int, error: BaseException | None) -> Decision:
        return RetryIn(self._full(attempts) * (1 - self.jitter * self.chance()))

    def _full(self, attempts: int) -> float:
        if not self.first:
            return 0.0
        try:
            return min(self.most, self.first * float(self.factor) ** (attempts - 1))
        except OverflowError:
            # No float is as large; `most` was reached long before.
            return self.most


@dataclass(frozen=True, slots=True)
class Never:
    """No second try."""

    detail: str = "not to be tried again"

    def decide(self, attempts: int, error: BaseException | None) -> Decision:
        return Bury(self.detail)


@dataclass(frozen=True, slots=True)
class ByException:
    """A policy for each type of exception, the nearest base class first."""

    policies: Mapping[type[BaseException], RetryPolicy]
    otherwise: RetryPolicy = field(default_factory=FixedDelays)

    def decide(self, attempts: int, error: BaseException | None) -> Decision:
        bases = type(error).__mro__ if error is not None else ()
        chosen = next((self.policies[base] for base in bases if base in self.policies), None)
        return (chosen or self.otherwise).decide(attempts, error)


def _is_duration(value: object) -> bool:
    return is_number(value, 0, _LONGEST)


def bounded(
    policy: RetryPolicy, attempts: int, max_attempts: int, error: BaseException | None
) -> Decision:
    """The policy's decision, unless the attempts are used up."""
    if attempts >= max_attempts:
        return Bury(f"failed {attempts} times, and {max_attempts} is the most")
    return policy.decide(attempts, error)
