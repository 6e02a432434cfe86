"""Every operation of a queue, on a queue with something in every place: to be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from data_fetcher_core import Entry, Lease
from data_fetcher_core.core import QueueStats
from data_fetcher_core.queue import KVStoreQueue

HOUR = 3600.0
MANY = 2_500


@dataclass
class Stage:
    """A queue with something in every place, and the leases that a test holds."""

    queue: KVStoreQueue
    held: list[Lease] = field(default_factory=list)
    before: QueueStats = field(default_factory=QueueStats)

    async def set(self) -> None:
        queue = self.queue
        await queue.enqueue(
            [Entry(n, id=f"id{n}", key=f"k{n}", lane="ab"[n % 2]) for n in range(9)]
        )
        await queue.enqueue([Entry("later", id="later", delay=60.0)])
        first, second, third, *self.held = await queue.lease(6)
        await first.bury("no")
        await second.bury("no")
        await third.complete(result="early", checkpoint={"cursor": 0})
        self.before = await queue.stats()


Operation = Callable[[Stage], Coroutine[Any, Any, Any]]


async def stream(stage: Stage) -> None:
    leases = stage.queue.leases(prefetch=4)
    stage.held.append(await anext(leases))
    await leases.aclose()


async def lease(stage: Stage) -> None:
    stage.held += await stage.queue.lease(2)


async def lease_in_lanes(stage: Stage) -> None:
    stage.held += await stage.queue.lease(2, wait=1.0, lanes=["b"], steal=["a"])


async def lease_with_patience(stage: Stage) -> None:
    waiting = asyncio.ensure_future(stage.queue.lease(wait=HOUR, lanes=["c"]))
    try:
        await asyncio.sleep(0)
        await stage.queue.enqueue(["c"], lane="c")
        stage.held += await waiting
    finally:
        await _reap(waiting, stage)


async def _reap(waiting: asyncio.Future[list[Lease]], stage: Stage) -> None:
    """A task that was left behind is cancelled too; what it had got is held, not lost."""
    if not waiting.done():
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            stage.held += await waiting


async def listed(stage: Stage) -> list[Any]:
    return [letter async for letter in stage.queue.dead_letters(page_size=1)]


async def body(stage: Stage) -> None:
    async with stage.held.pop():
        await asyncio.sleep(0)


async def failing_body(stage: Stage) -> None:
    async with stage.held.pop():
        await asyncio.sleep(0)
        raise ValueError("no")


async def entering(stage: Stage) -> None:
    queue = KVStoreQueue(stage.queue._store, stage.queue._namespace, clock=stage.queue._clock)
    try:
        async with queue:
            await queue.lease(2)
    finally:
        await queue.close()


OPERATIONS: dict[str, Operation] = {
    "enqueue": lambda s: s.queue.enqueue(["new", "newer"]),
    "enqueue with a checkpoint": lambda s: s.queue.enqueue([1, 2, 3], checkpoint={"cursor": 1}),
    "enqueue many": lambda s: s.queue.enqueue(range(MANY)),
    "lease": lease,
    "lease in lanes": lease_in_lanes,
    "lease with patience": lease_with_patience,
    "stream": stream,
    "dequeue": lambda s: s.queue.dequeue(2),
    "complete": lambda s: s.held.pop().complete(["child", "child"], {"cursor": 1}, "result"),
    "release": lambda s: s.held.pop().release(0.0, "no"),
    "release later": lambda s: s.held.pop().release(5.0, "no"),
    "bury": lambda s: s.held.pop().bury("no"),
    "give back": lambda s: s.held.pop().give_back(),
    "body": body,
    "failing body": failing_body,
    "size": lambda s: s.queue.size(),
    "peek": lambda s: s.queue.peek(5),
    "snapshot": lambda s: s.queue.snapshot(),
    "checkpoint": lambda s: s.queue.checkpoint("cursor"),
    "results": lambda s: s.queue.results(),
    "trim_results": lambda s: s.queue.trim_results(1),
    "dead_letters": listed,
    "requeue": lambda s: s.queue.requeue(),
    "purge_dead": lambda s: s.queue.purge_dead(),
    "shut": lambda s: s.queue.shut("a", 5.0),
    "reopen": lambda s: s.queue.reopen("a"),
    "pace": lambda s: s.queue.pace("a", limit=1),
    "cancel": lambda s: s.queue.cancel(["id7", "later", "id4"], forget=True),
    "clear": lambda s: s.queue.clear(),
    "recount": lambda s: s.queue.recount(),
    "sweep": lambda s: s.queue.sweep(),
    "enter and leave": entering,
}
