"""Where a run stands: what its queue, its locators and its workers say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from data_fetcher_core.cli.beginning import settings_of
from data_fetcher_core.cli.finishing import LocatorStanding, is_finished, left_in, locators_of
from data_fetcher_core.cli.presence import Worker, workers_on
from data_fetcher_core.cli.registry import RunEntry, run_queue
from data_fetcher_core.cli.settings import Settings
from data_fetcher_core.core import QueueStats
from data_fetcher_core.errors import ConfigurationError, StoreCorrupt
from data_fetcher_core.kv_store import KeyValueStore


@dataclass(frozen=True, slots=True)
class RunStanding:
    """A run at one moment."""

    entry: RunEntry
    settings: Settings | None
    stats: QueueStats
    workers: Sequence[Worker] = field(default_factory=tuple)
    locators: Sequence[LocatorStanding] = field(default_factory=tuple)
    is_unreadable: bool = False

    @property
    def left(self) -> int:
        return left_in(self.stats)

    @property
    def is_finished(self) -> bool:
        return is_finished(self.locators, self.stats, self.settings)

    @property
    def state(self) -> str:
        if self.is_unreadable:
            return "unreadable"
        if self.is_finished:
            return "finished"
        if self.workers:
            return "working"
        return "stopped" if self.stats.enqueued else "not begun"


async def standing_of(store: KeyValueStore, entry: RunEntry) -> RunStanding:
    async with run_queue(store, entry.run_id) as queue:
        settings = await settings_of(queue)
        return RunStanding(
            entry,
            settings,
            await queue.stats(),
            await workers_on(store, entry.run_id),
            [] if settings is None else await locators_of(queue, settings.locators),
        )


async def standing_if_readable(store: KeyValueStore, entry: RunEntry) -> RunStanding:
    """For a list: one run of another version, or damaged, spoils nothing for the others."""
    try:
        return await standing_of(store, entry)
    except (ConfigurationError, StoreCorrupt):
        return RunStanding(entry, None, QueueStats(), is_unreadable=True)
