"""What is done about dead letters."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import cast

from data_fetcher_core.cli.beginning import known
from data_fetcher_core.cli.dead_report import DeadReport
from data_fetcher_core.cli.places import Place
from data_fetcher_core.cli.presence import workers_on
from data_fetcher_core.cli.registry import run_queue
from data_fetcher_core.core import DeadLetter
from data_fetcher_core.kv_store import KeyValueStore
from data_fetcher_core.queue import KVStoreQueue

_PAGE = 1_000


async def listed(
    store: KeyValueStore, place: Place, run_id: str, limit: int
) -> tuple[list[DeadReport], int]:
    """The oldest ``limit`` of them, and how many there are."""
    await known(store, place, run_id)
    async with run_queue(store, run_id) as queue:
        return await oldest(queue, limit), (await queue.stats()).dead


async def oldest(queue: KVStoreQueue, limit: int) -> list[DeadReport]:
    """So many of them, and no more is read: there may be millions."""
    letters: list[DeadReport] = []
    if not limit:
        return letters
    found = cast("AsyncGenerator[DeadLetter]", queue.dead_letters(min(limit, _PAGE)))
    async with aclosing(found):
        async for letter in found:
            letters.append(DeadReport.of(letter))
            if len(letters) == limit:
                break
    return letters


async def requeued(
    store: KeyValueStore, place: Place, run_id: str, ids: Sequence[str] | None
) -> tuple[int, bool]:
    """How many are ready again, and whether somebody works on the run."""
    await known(store, place, run_id)
    async with run_queue(store, run_id) as queue:
        number = await queue.requeue(ids)
    return number, bool(await workers_on(store, run_id))


async def purged(store: KeyValueStore, place: Place, run_id: str, older_than: float) -> int:
    await known(store, place, run_id)
    async with run_queue(store, run_id) as queue:
        return await queue.purge_dead(older_than)
