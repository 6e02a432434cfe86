"""Looking at runs: all of them, or one of them twice."""

from __future__ import annotations

import anyio

from data_fetcher_core.cli.beginning import known
from data_fetcher_core.cli.burying import oldest
from data_fetcher_core.cli.dead_report import DeadReport
from data_fetcher_core.cli.places import Place
from data_fetcher_core.cli.registry import all_runs, run_queue
from data_fetcher_core.cli.run_report import Look
from data_fetcher_core.cli.standing import RunStanding, standing_if_readable, standing_of
from data_fetcher_core.kv_store import KeyValueStore

_APART = 1.0
_FEW = 3


async def newest_runs(store: KeyValueStore, limit: int) -> list[RunStanding]:
    entries = [entry async for entry in all_runs(store)]
    entries.sort(key=lambda entry: entry.created_at, reverse=True)
    return [await standing_if_readable(store, entry) for entry in entries[:limit]]


async def look_twice(store: KeyValueStore, place: Place, run_id: str) -> Look:
    """Nothing moves in a run that is finished: once is enough then."""
    entry = await known(store, place, run_id)
    before, begun = await standing_of(store, entry), anyio.current_time()
    if before.is_finished:
        return Look(before, before, _APART, await _some_dead(store, run_id))
    await anyio.sleep(_APART)
    now, ended = await standing_of(store, entry), anyio.current_time()
    return Look(before, now, ended - begun, await _some_dead(store, run_id))


async def _some_dead(store: KeyValueStore, run_id: str) -> list[DeadReport]:
    async with run_queue(store, run_id) as queue:
        return await oldest(queue, _FEW)
