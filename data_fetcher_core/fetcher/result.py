"""How a call of :meth:`Fetcher.run` ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from data_fetcher_core.core import FetchRunContext, QueueStats

# Older ones are dead letters, and nothing is lost of them.
MOST_ERRORS = 100


@dataclass(frozen=True, slots=True)
class FetchResult:
    """What this call settled, and where the whole run stands.

    ``errors`` tells of the last requests that this call gave up; all are dead letters.
    """

    processed_count: int
    errors: list[str]
    context: FetchRunContext
    stats: QueueStats = field(default_factory=QueueStats)
    cut_short: bool = False
    """Whether it was stopped while locators had no turn yet: there is more than the queue knows."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do; dead letters may still be there."""
        return not self.cut_short and self.stats.size + self.stats.leased == 0
