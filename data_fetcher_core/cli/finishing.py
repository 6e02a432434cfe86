"""When a run is finished: one answer, for all commands that ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from data_fetcher_core.cli.settings import Settings
from data_fetcher_core.core import QueueStats
from data_fetcher_core.fetcher.turns import checkpoint_name
from data_fetcher_core.queue import KVStoreQueue


@dataclass(frozen=True, slots=True)
class LocatorStanding:
    """A locator, how often it was asked, and whether it has more."""

    name: str
    turns: int
    exhausted: bool


def left_in(stats: QueueStats) -> int:
    """How many requests are ready, delayed or in flight; a locator's turn is one, too."""
    return stats.size + stats.leased


def have_more(
    locators: Sequence[LocatorStanding], stats: QueueStats, settings: Settings | None
) -> tuple[str, ...]:
    """Those that are still to be asked. Once the limit is reached nobody is."""
    if limit_reached(stats, settings):
        return ()
    return tuple(locator.name for locator in locators if not locator.exhausted)


def is_finished(
    locators: Sequence[LocatorStanding], stats: QueueStats, settings: Settings | None
) -> bool:
    """In a run that has not begun, nothing was ever accepted.

    A locator whose turn was given up has more, and nothing of it is in the queue.
    """
    more = left_in(stats) or have_more(locators, stats, settings)
    return stats.enqueued > 0 and not more


def limit_reached(stats: QueueStats, settings: Settings | None) -> int | None:
    """The limit of ``--max-pages``, if as many pages were found; a turn has a key as they have."""
    if settings is None:
        return None
    most: int | None = settings.identity.get("max_pages")
    return most if most and stats.keyed - len(settings.locators) >= most else None


async def locators_of(queue: KVStoreQueue, names: Sequence[str]) -> list[LocatorStanding]:
    return [await _locator(queue, name) for name in names]


async def _locator(queue: KVStoreQueue, name: str) -> LocatorStanding:
    saved = await queue.checkpoint(checkpoint_name(name)) or {}
    return LocatorStanding(name, saved.get("turn", 0), bool(saved.get("exhausted")))
