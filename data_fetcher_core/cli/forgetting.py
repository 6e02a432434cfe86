"""Forgetting a run, and its pages if that is wished."""

from __future__ import annotations

from data_fetcher_core.cli import registry
from data_fetcher_core.cli.beginning import known, settings_of
from data_fetcher_core.cli.output import remove_pages
from data_fetcher_core.cli.places import Place
from data_fetcher_core.cli.registry import run_queue
from data_fetcher_core.cli.standing import RunStanding, standing_of
from data_fetcher_core.cli.view.figures import count
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.fetcher.fetcher import BIRTH
from data_fetcher_core.kv_store import KeyValueStore
from data_fetcher_core.queue import KVStoreQueue


async def looked_up(store: KeyValueStore, place: Place, run_id: str) -> RunStanding:
    return await standing_of(store, await known(store, place, run_id))


def question(standing: RunStanding, *, pages: bool) -> str:
    """What a person should know before saying yes."""
    what = f"{count(standing.stats.completed)} done, {count(standing.left)} left"
    works = " Somebody works on it right now." if standing.workers else ""
    out = "" if standing.settings is None else f" in {standing.settings.identity['out']}"
    and_pages = f" and its pages{out}" if pages else ""
    return f"Forget the run {standing.entry.run_id} ({what}){and_pages}?{works}"


async def forget(store: KeyValueStore, place: Place, run_id: str, *, pages: bool) -> str | None:
    """Pages first: as long as the run is known, it can be tried again. Where they were, or are."""
    await known(store, place, run_id)
    async with run_queue(store, run_id) as queue:
        out = await _out_of(queue)
        if pages and out is not None:
            await remove_pages(out, await queue.checkpoint(BIRTH))
        await queue.forget()
    await registry.remove(store, run_id)
    return out


async def _out_of(queue: KVStoreQueue) -> str | None:
    try:
        settings = await settings_of(queue)
    except ConfigurationError:  # Of another version: that must not keep it from being forgotten.
        return None
    return None if settings is None else str(settings.identity["out"])
