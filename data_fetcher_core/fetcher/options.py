"""The options of a fetcher: how a run behaves, beside what its queue is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from data_fetcher_core.checking import is_number, is_whole_number
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.fetcher.breaker import BreakerOptions
from data_fetcher_core.queue.options import QueueOptions
from data_fetcher_core.showing import shown

_LONGEST = 100 * 365 * 86_400.0
_MOST_PAGES = 2**31 - 2


@dataclass(frozen=True, kw_only=True)
class FetcherOptions:
    """Durations are seconds.

    The options of the queue that were named apply to the whole run, also if it was begun with
    others: ``lane_concurrency`` is how many requests a host gets at a time, ``lane_interval``
    how long it is left alone between two.
    """

    queue: QueueOptions = field(default_factory=QueueOptions)
    request_timeout: float = 120.0
    """How long one request may take, its links included, before it counts as failed."""
    locator_timeout: float = 600.0
    """How long a locator may take for its next requests."""
    grace: float = 10.0
    """How long requests in flight may go on after a stop, before they are given back."""
    max_pages: int = 0
    """How many requests the whole run makes; 0 for no bound."""
    breaker: BreakerOptions = field(default_factory=BreakerOptions)
    """When a host that fails is left alone."""

    def __post_init__(self) -> None:
        for name, kind in (("queue", QueueOptions), ("breaker", BreakerOptions)):
            if not isinstance(value := getattr(self, name), kind):
                raise ConfigurationError(f"{name} must be a {kind.__name__}, not {shown(value)}")
        for name in ("request_timeout", "locator_timeout", "grace"):
            value = getattr(self, name)
            if not is_number(value, 0, _LONGEST) or (value == 0 and name != "grace"):
                raise ConfigurationError(f"{name} must be a number of seconds, not {shown(value)}")
        if not is_whole_number(self.max_pages, 0, _MOST_PAGES):
            raise ConfigurationError(
                f"max_pages must be a whole number from 0 to {_MOST_PAGES}, not "
                f"{shown(self.max_pages)}"
            )

    def for_queue(self, locators: int) -> QueueOptions:
        """What the queue is told. The first turn of each locator has a key, too."""
        named = {name: getattr(self.queue, name) for name in self.queue.given}
        if self.max_pages:
            named["max_keyed"] = self.max_pages + locators
        return QueueOptions(**named)
