"""The account of a queue that a cut left behind: all that was acknowledged, and nothing by half."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.testing import ManualClock
from tests.fault_support import open_run, results
from tests.harness import accounted, letters, settled, silence
from tests.power.events import Acknowledged, Begun, Commit
from tests.power.record import Record
from tests.power.workload import RUN, page_of

# After everything that the workload put off.
_LATER = 1_000_000_000.0 + 10_000_000.0


@dataclass
class Due:
    """What a store with so many commits must hold, and what it may."""

    sent: set[str] = field(default_factory=set)
    perhaps_sent: set[str] = field(default_factory=set)
    completed: set[str] = field(default_factory=set)
    perhaps_completed: dict[str, list[str]] = field(default_factory=dict)
    perhaps_cancelled: set[str] = field(default_factory=set)
    saved: set[str] = field(default_factory=set)


@dataclass
class Found:
    """What it does hold: each name with how often it was found."""

    completed: Counter[str]
    dead: Counter[str]
    left: Counter[str]
    saved: set[str]

    @property
    def all(self) -> Counter[str]:
        return self.completed + self.dead + self.left


def due(record: Record, commits: int) -> Due:
    """By what the workload said: a step is in if it was answered before the next commit came."""
    known, begun, answer = Due(), dict[int, dict[str, Any]](), 0
    for event in record.events:
        if isinstance(event, Commit):
            answer = event.number
        elif isinstance(event, Begun):
            if answer <= commits:
                begun[event.step] = event.what
                _may_hold(known, event.what)
        elif isinstance(event, Acknowledged) and answer <= commits:
            _must_hold(known, begun[event.step])
    return known


def _may_hold(known: Due, what: dict[str, Any]) -> None:
    match what:
        case {"kind": "enqueue", "names": names}:
            known.perhaps_sent.update(names)
        case {"kind": "complete", "name": name, "children": children}:
            known.perhaps_sent.update(children)
            known.perhaps_completed[name] = children
        case {"kind": "cancel", "names": names}:
            known.perhaps_cancelled.update(names)


def _must_hold(known: Due, what: dict[str, Any]) -> None:
    match what:
        case {"kind": "enqueue", "names": names, "cursor": cursor}:
            known.sent.update(names)
            known.saved.update(filter(None, [cursor]))
        case {"kind": "complete", "name": name, "children": children}:
            known.sent.update(children)
            known.completed.add(name)


async def settle_account(path: Path, record: Record, commits: int) -> str:
    """What is wrong with the queue, in words; nothing if nothing is. The file is used up."""
    try:
        found = await _found(path, record)
        await _goes_on(path)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is told with its cut
        return f"the queue cannot go on: {error!r}"
    return wrong_with(found, due(record, commits))


def wrong_with(found: Found, known: Due) -> str:
    everywhere = found.all
    missing = known.sent - set(everywhere) - known.perhaps_cancelled
    problems = {
        "lost": missing,
        "not completed": known.completed - set(found.completed),
        "more than once": {name for name, count in everywhere.items() if count > 1},
        "from nowhere": set(everywhere) - known.perhaps_sent,
        "half completed": set(_half(found, known)),
        "not saved": known.saved - found.saved,
    }
    return "; ".join(f"{what}: {sorted(names)}" for what, names in problems.items() if names)


def _half(found: Found, known: Due) -> list[str]:
    """Pages whose completion, links and checkpoint are not all there, or all absent."""
    there = set(found.all) | known.perhaps_cancelled
    half = []
    for name, children in known.perhaps_completed.items():
        done = name in found.completed
        links = [child in there for child in children if child not in known.perhaps_cancelled]
        if {done, page_of(name) in found.saved, *links} == {True, False}:
            half.append(name)
    return half


async def _found(path: Path, record: Record) -> Found:
    clock = ManualClock(_LATER)
    store = SQLiteStore(path, reserve_bytes=0, clock=clock)
    async with store, open_run(store, RUN, clock=clock) as queue:
        await accounted(queue)
        await silence(queue, clock)
        done = Counter(await results(queue))
        dead = Counter(letter.id for letter in await letters(queue))
        saved = await _saved(queue, record)
        left = Counter(await _drained(queue))
        await accounted(queue)
    return Found(done, dead, left, saved)


async def _saved(queue: KVStoreQueue, record: Record) -> set[str]:
    begun = [event.what for event in record.events if isinstance(event, Begun)]
    names = [page_of(what["name"]) for what in begun if what["kind"] == "complete"]
    names += [what["cursor"] for what in begun if what.get("cursor")]
    values = await asyncio.gather(*map(queue.checkpoint, names))
    return {name for name, value in zip(names, values, strict=True) if value is not None}


async def _drained(queue: KVStoreQueue) -> list[str]:
    """Complete all that is left; what its dead process held has been given back."""
    names: list[str] = []
    async with asyncio.timeout(30):
        while leases := await queue.lease(1000):
            await asyncio.gather(*(lease.complete() for lease in leases))
            names += [lease.item["name"] for lease in leases]
            await settled(queue)
    stats = await queue.stats()
    assert not stats.leased + stats.size, stats
    return names


async def _goes_on(path: Path) -> None:
    """It takes in something new, and has it when it is opened once more."""
    for _ in range(2):
        store = SQLiteStore(path, reserve_bytes=0)
        async with store, open_run(store, RUN) as queue:
            assert await queue.enqueue(["afterwards"]) == 1
            (lease,) = await queue.lease()
            await lease.complete()
