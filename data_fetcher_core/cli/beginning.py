"""Entering a run: beginning it, going on with it, joining it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from data_fetcher_core.cli import registry
from data_fetcher_core.cli.folders import free_pages_folder
from data_fetcher_core.cli.output import prepare_folder, remove_if_empty
from data_fetcher_core.cli.places import Place, command_line
from data_fetcher_core.cli.private_hosts import check_hosts
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


@dataclass(frozen=True, slots=True)
class _New:
    """Settings for a new run, and the folder that was made for its pages, if one was."""

    settings: Settings
    made: Path | None = None


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
        new, settings = await _new(queue, asked, run_id), None
        try:
            await registry.register(store, run_id, asked.command, title)
            settings = await _agreed(queue, new.settings, asked, named)
        except ConfigurationError as error:
            error.add_note(f"go on with it as begun: {command_line(place, 'resume', run_id)}")
            error.add_note(
                "or begin another: with another --run-id, or after "
                f"{command_line(place, 'forget', run_id)}"
            )
            raise
        finally:
            await _tidy(new, settings)
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


async def note_locators(queue: KVStoreQueue, settings: Settings, names: Sequence[str]) -> Settings:
    """A recipe may be mended between two calls: those of its locators count that it has now."""
    if settings.locators == tuple(names):
        return settings
    while True:
        stored = await queue.checkpoint(SETTINGS)
        wanted = replace(Settings.from_state(stored), locators=tuple(names))
        if await _saved(queue, stored, wanted):
            return replace(settings, locators=tuple(names))


async def _new(queue: KVStoreQueue, asked: Settings, run_id: str) -> _New:
    """What a run that has no settings yet would get."""
    if await queue.checkpoint(SETTINGS) is None:
        check_hosts(asked)
        try:
            return await to_thread.run_sync(_with_place_for_pages, asked, run_id)
        except ConfigurationError:
            # Somebody else may have begun it just now, and have its pages there.
            if await queue.checkpoint(SETTINGS) is None:
                raise
    return _New(asked)


async def _tidy(new: _New, agreed: Settings | None) -> None:
    """Remove the folder that was made here, if it is not the run's."""
    if new.made is None or (agreed and agreed.identity["out"] == new.settings.identity["out"]):
        return
    with anyio.CancelScope(shield=True):
        await to_thread.run_sync(remove_if_empty, new.made)


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


def _with_place_for_pages(asked: Settings, run_id: str) -> _New:
    """Checked now: what cannot be written to must not become the place of a run."""
    out = asked.identity["out"] or str(free_pages_folder(run_id))
    made = Path(out) if "://" not in out and prepare_folder(Path(out)) else None
    return _New(replace(asked, identity={**asked.identity, "out": out}), made)
