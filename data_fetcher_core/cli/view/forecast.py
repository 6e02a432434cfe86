"""What the store would say between two looks at it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from data_fetcher_core.core import QueueStats


@dataclass(frozen=True, slots=True)
class Forecast:
    """What this process had settled, and seen of links, at the last look.

    ``new`` is the share of links that led to something new between the last two looks.
    """

    settled: int = 0
    links: int = 0
    new: float | None = None

    def after(self, stats: QueueStats, before: QueueStats, settled: int, links: int) -> Forecast:
        """From this look on."""
        seen, entered = links - self.links, stats.enqueued - before.enqueued
        return Forecast(settled, links, min(1.0, max(0.0, entered / seen)) if seen else self.new)

    def found(self, settled: int, links: int) -> int:
        """How many requests are new since; as many as are settled, while nothing is known."""
        if self.new is None:
            return settled - self.settled
        return round((links - self.links) * self.new)
