"""What the model is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from data_fetcher_core.queue.ordering import CRITICAL, Head, Pace, choose


@dataclass(frozen=True)
class ModelOptions:
    """The options that shape what the queue does, in microseconds and plain numbers."""

    capacity: int = 0
    max_keyed: int = 0
    max_deaths: int = 5
    ageing_step: int = 60_000_000
    critical_burst: int = 0
    lane_interval: int = 0
    lane_burst: int = 0
    lane_concurrency: int = 0


@dataclass
class Request:
    """One request and all that is known of it."""

    id: str
    item: Any
    lane: str = ""
    key: str | None = None
    priority: int = 3
    delay: int = 0
    expires_in: int = 0
    attempts: int = 0
    deaths: int = 0
    ready_at: int = 0
    expires_at: int = 0
    failures: list[str] = field(default_factory=list)
    # Which delivery of all it is, or was last: what its lease is known by.
    delivery: int = 0


@dataclass
class Lane:
    """Six double-ended lists, a gate, a pace and a limit (below zero: the queue's default)."""

    lists: dict[int, list[Request]] = field(default_factory=lambda: {p: [] for p in range(1, 7)})
    gate: int = 0
    arrival: int = 0
    in_flight: int = 0
    interval: int = -1
    burst: int = -1
    limit: int = -1
    criticals: int = 0

    def pace(self, options: ModelOptions) -> Pace:
        interval = options.lane_interval if self.interval < 0 else self.interval
        return Pace(interval, options.lane_burst if self.burst < 0 else self.burst)

    def in_order(self, options: ModelOptions) -> list[Request]:
        """Everything that is ready here, as it would be leased."""
        lists = {p: list(waiting) for p, waiting in self.lists.items()}
        order, row = [], self.criticals
        while any(lists.values()):
            heads = [Head(p, x[0].ready_at) for p, x in lists.items() if x]
            head = choose(heads, options.ageing_step, options.critical_burst, row)
            row = row + 1 if head.priority == CRITICAL else 0
            order.append(lists[head.priority].pop(0))
        return order

    def below_limit(self, options: ModelOptions) -> bool:
        limit = options.lane_concurrency if self.limit < 0 else self.limit
        return limit == 0 or self.in_flight < limit
