"""Entering a run: beginning it, going on with it, joining it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anyio import to_thread

from data_fetcher_core.cli import registry
from data_fetcher_core.cli.folders import free_pages_folder
from data_fetcher_core.cli.output import prepare_folder
from data_fetcher_core.cli.places import Place, command_line
from data_fetcher_core.cli.registry import SETTINGS, run_queue
from data_fetcher_core.cli.settings import Settings, merged
from data_fetcher_core.core import FetcherRecipe
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.kv_store import KeyValueStore
from data_fetcher_core.queue import KVStoreQueue

# These are the whole run's. The others are each process's own.
_SHARED = frozenset({"per_host", "delay", "retries"})


@dataclass(frozen=True, slots=True)
class Run:
    """A run that was entered; one that is joined was begun by somebody else."""

    run_id: str
    settings: Settings
    title: str
    is_joined: bool = False
    recipe: FetcherRecipe | None = None


async def begin(
    store: KeyValueStore,
    place: Place,
    run_id: str,
    asked: Settings,
    *,
    named: Collection[str],
    title: str,
    recipe: FetcherRecipe | None = None,
) -> Run:
    """Begin the run, or go on with it if it has begun. Of two who begin at once, one wins."""
    async with run_queue(store, run_id) as queue:
        new = asked
        if await queue.checkpoint(SETTINGS) is None:
            new = await to_thread.run_sync(_with_place_for_pages, asked, run_id)
        await registry.register(store, run_id, asked.command, title)
        try:
            settings = await _agreed(queue, new, asked, named)
        except ConfigurationError as error:
            error.add_note(f"go on with it as begun: {command_line(place, 'resume', run_id)}")
            error.add_note(
                "or begin another: with another --run-id, or after "
                f"{command_line(place, 'forget', run_id)}"
            )
            raise
    return Run(run_id, settings, title, recipe=recipe)


async def resume(store: KeyValueStore, place: Place, run_id: str, given: Mapping[str, Any]) -> Run:
    """Go on with a run; the options that are given apply from now on."""
    entry = await known(store, place, run_id)
    async with run_queue(store, run_id) as queue:
        return Run(run_id, await _changed(queue, run_id, given), entry.title)


async def join(store: KeyValueStore, place: Place, run_id: str, given: Mapping[str, Any]) -> Run:
    """Help with a run. What is given applies to this process, but for what all share."""
    entry = await known(store, place, run_id)
    async with run_queue(store, run_id) as queue:
        shared = {name: value for name, value in given.items() if name in _SHARED}
        settings = await _changed(queue, run_id, shared)
    return Run(run_id, settings.with_speed(given), entry.title, is_joined=True)


async def known(store: KeyValueStore, place: Place, run_id: str) -> registry.RunEntry:
    """The run of that id; an unknown one is not begun by asking for it."""
    entry = None if place.is_missing else await registry.find(store, run_id)
    if entry is None:
        raise ConfigurationError(
            f"there is no run {run_id[:120]!r} in {place}; those that there are: "
            f"{command_line(place, 'runs')}"
        )
    return entry


async def settings_of(queue: KVStoreQueue) -> Settings | None:
    stored = await queue.checkpoint(SETTINGS)
    return None if stored is None else Settings.from_state(stored)


async def _agreed(
    queue: KVStoreQueue, new: Settings, asked: Settings, named: Collection[str]
) -> Settings:
    """``new`` ones for a run that has none, else those it has, with what was ``asked`` for."""
    while True:
        stored = await queue.checkpoint(SETTINGS)
        wanted = new if stored is None else merged(Settings.from_state(stored), asked, named)
        if await _saved(queue, stored, wanted):
            return wanted


async def _changed(queue: KVStoreQueue, run_id: str, given: Mapping[str, Any]) -> Settings:
    while True:
        stored = await queue.checkpoint(SETTINGS)
        if stored is None:
            raise ConfigurationError(
                f"the run {run_id!r} was stopped before it had begun: type the command again that "
                "was to begin it"
            )
        wanted = Settings.from_state(stored).with_speed(given)
        if await _saved(queue, stored, wanted):
            return wanted


async def _saved(queue: KVStoreQueue, stored: Any, wanted: Settings) -> bool:
    """Whether these are the settings of the run now; not if somebody else was faster."""
    state = wanted.to_state()
    return state == stored or await queue.swap_checkpoint(SETTINGS, stored, state)


def _with_place_for_pages(asked: Settings, run_id: str) -> Settings:
    """Checked now: what cannot be written to must not become the place of a run."""
    out = asked.identity["out"] or str(free_pages_folder(run_id))
    if "://" not in out:
        prepare_folder(Path(out))
    return replace(asked, identity={**asked.identity, "out": out})
