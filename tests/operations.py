"""Every operation of a queue, on a queue with something in every place: to be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from data_fetcher_core import Entry, Lease
from data_fetcher_core.core import QueueStats
from data_fetcher_core.queue import KVStoreQueue, QueueOptions
from data_fetcher_core.testing import ManualClock

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


async def entered_stream(stage: Stage) -> None:
    async with stage.queue.leases(prefetch=4, until="drained") as leases:
        taken = await leases.next()
        assert taken is not None
        stage.held.append(taken)


async def lease(stage: Stage) -> None:
    stage.held += await stage.queue.lease(2)


async def admits_more(stage: Stage) -> None:
    """Of a run without a bound nothing is asked."""
    queue = _another(stage, options=QueueOptions(max_keyed=10 * MANY), update=True)
    try:
        assert await queue.admits_more()
    finally:
        await queue.close()


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


async def shutdown(stage: Stage) -> None:
    """Of another queue of the run. It waits for nothing itself; who waits for a lease is told."""
    queue = _another(stage)
    waiting = asyncio.ensure_future(queue.lease(wait=HOUR, lanes=["c"]))
    try:
        await asyncio.sleep(0)
        await queue.shutdown()
        assert await waiting == []
    finally:
        await _reap(waiting, stage)
        await queue.close()


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


async def confirm(stage: Stage) -> None:
    """After a silence: before, the store is not even asked."""
    clock = stage.queue._clock
    assert isinstance(clock, ManualClock)
    clock.advance(stage.queue._options.lease_ttl)
    await stage.held[-1].confirm()


async def entering(stage: Stage) -> None:
    queue = _another(stage)
    try:
        async with queue:
            await queue.lease(2)
    finally:
        await queue.close()


def _another(stage: Stage, **how: Any) -> KVStoreQueue:
    queue = stage.queue
    return KVStoreQueue(queue._store, queue._namespace, clock=queue._clock, **how)


OPERATIONS: dict[str, Operation] = {
    "enqueue": lambda s: s.queue.enqueue(["new", "newer"]),
    "enqueue with a checkpoint": lambda s: s.queue.enqueue([1, 2, 3], checkpoint={"cursor": 1}),
    "enqueue many": lambda s: s.queue.enqueue(range(MANY)),
    "lease": lease,
    "lease in lanes": lease_in_lanes,
    "lease with patience": lease_with_patience,
    "stream": stream,
    "entered stream": entered_stream,
    "dequeue": lambda s: s.queue.dequeue(2),
    "complete": lambda s: s.held.pop().complete(["child", "child"], {"cursor": 1}, "result"),
    "progress": lambda s: s.held.pop().progress(["child"], {"cursor": 1}),
    "drop": lambda s: s.held.pop().drop({"cursor": 1}),
    "confirm": confirm,
    "release": lambda s: s.held.pop().release(0.0, "no"),
    "release later": lambda s: s.held.pop().release(5.0, "no"),
    "bury": lambda s: s.held.pop().bury("no"),
    "fail": lambda s: s.held.pop().fail(ValueError("no")),
    "give back": lambda s: s.held.pop().give_back(),
    "body": body,
    "failing body": failing_body,
    "stats": lambda s: s.queue.stats(),
    "size": lambda s: s.queue.size(),
    "admits_more": admits_more,
    "peek": lambda s: s.queue.peek(5),
    "snapshot": lambda s: s.queue.snapshot(),
    "checkpoint": lambda s: s.queue.checkpoint("cursor"),
    "swap_checkpoint": lambda s: s.queue.swap_checkpoint("cursor", 0, 1),
    "results": lambda s: s.queue.results(),
    "trim_results": lambda s: s.queue.trim_results(1),
    "dead_letters": listed,
    "requeue": lambda s: s.queue.requeue(),
    "purge_dead": lambda s: s.queue.purge_dead(),
    "shut": lambda s: s.queue.shut("a", 5.0),
    "reopen": lambda s: s.queue.reopen("a"),
    "limit": lambda s: s.queue.limit("a", 1),
    "pace": lambda s: s.queue.pace("a", limit=1),
    "cancel": lambda s: s.queue.cancel(["id7", "later", "id4"], forget=True),
    "clear": lambda s: s.queue.clear(),
    "recount": lambda s: s.queue.recount(),
    "sweep": lambda s: s.queue.sweep(),
    "shutdown": shutdown,
    "enter and leave": entering,
}

# After these the leases of the stage are nobody's, so each has a promise of its own.
ENDINGS: dict[str, Operation] = {
    "close": lambda s: s.queue.close(),
    "forget": lambda s: s.queue.forget(),
}
