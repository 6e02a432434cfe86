"""Asks the store itself, at the end: whether it is drained, and what it holds."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_fetcher_core.queue import KVStoreQueue
from tests.chaos.account import Picture
from tests.chaos.worker import open_chaos

_GLANCE = 0.05
_PATIENCE = 120.0


async def main(orders: Mapping[str, Any]) -> int:
    """``wait`` for so long until nothing is queued, ``probe``, or else look at everything."""
    told: Any
    async with open_chaos(orders["url"], {}, lambda _: None) as queue:
        if (within := orders.get("wait")) is not None:
            told = await _drained_at(queue, within)
        elif (times := orders.get("probe")) is not None:
            told = {size: await _cost_of_leases(queue, size, times) for size in (1, 100)}
        else:
            told = dataclasses.asdict(await _look(queue))
    _write(Path(orders["answer"]), told)
    return 0


async def _drained_at(queue: KVStoreQueue, within: float) -> float | None:
    """The instant at which nothing was queued or leased any more."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        stats = await queue.stats()
        if stats.size + stats.leased == 0:
            return time.monotonic()
        await asyncio.sleep(_GLANCE)
    return None


async def _cost_of_leases(queue: KVStoreQueue, size: int, times: int) -> float:
    """The median of leasing so many at once, in seconds; all are given back."""
    took: list[float] = []
    for _ in range(times):
        start = time.perf_counter()
        leases = await queue.lease(size)
        took.append(time.perf_counter() - start)
        await asyncio.gather(*(lease.give_back() for lease in leases))
    return statistics.median(took)


async def _look(queue: KVStoreQueue) -> Picture:
    miscounted = dict(await queue.recount())
    stats = await queue.stats()
    letters = [one async for one in queue.dead_letters()]
    # The store tells the time of day; all of it is one machine here.
    since_boot = time.monotonic() - time.time()
    return Picture(
        completed=tuple(await _results(queue)),
        dead=tuple((one.id, one.reason.value, one.deaths) for one in letters),
        queued=tuple(await _left(queue)),
        stats={**dataclasses.asdict(stats), "unaccounted": stats.unaccounted},
        miscounted=miscounted,
        buried_at={one.id: one.buried_at + since_boot for one in letters},
    )


async def _results(queue: KVStoreQueue) -> list[str]:
    found: list[str] = []
    number = 0
    while page := await queue.results(after=number):
        found += [name for _, name in page]
        number = page[-1][0]
    return found


async def _left(queue: KVStoreQueue) -> list[str]:
    """Take out whatever is still there: nobody works on it any more.

    What the dead hold comes when their silence was long enough.
    """
    left: list[str] = []
    until = time.monotonic() + _PATIENCE
    while (stats := await queue.stats()).size + stats.leased and time.monotonic() < until:
        leases = await queue.lease(1000, wait=1.0)
        left += [lease.item[0] for lease in leases]
        await asyncio.gather(*(lease.complete() for lease in leases))
    return left


def _write(path: Path, told: Any) -> None:
    """As a whole or not at all: somebody waits for it."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(told))
    part.rename(path)


def read_picture(path: Path) -> Picture:
    told = json.loads(path.read_text())
    return Picture(
        completed=tuple(told["completed"]),
        dead=tuple((name, reason, deaths) for name, reason, deaths in told["dead"]),
        queued=tuple(told["queued"]),
        stats=told["stats"],
        miscounted=told["miscounted"],
        buried_at=told.get("buried_at", {}),
    )
