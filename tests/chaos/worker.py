"""A process of workers, to be killed: leases, handles, settles, and notes all of it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_fetcher_core.core import Entry
from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.events import (
    ConsumerReaped,
    Event,
    HeartbeatMissed,
    LeasesLost,
    LeasesReturned,
)
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue, Lease, QueueOptions
from data_fetcher_core.queue.opening import open_queue
from data_fetcher_core.queue.stream import LeaseStream
from tests.chaos.cancelling import Fate
from tests.chaos.ledger import Pen
from tests.chaos.names import children_of, is_poison

RUN = "chaos"
POISONED = 66
_PAUSE = 0.05
_WAIT = 1.0
_CHILDS_WORK = 0.02
_CHANGES_ITS_MIND = 0.3


@dataclass(frozen=True)
class WorkerOrders:
    url: str
    ledger: str
    process: str
    workers: int
    options: dict[str, Any]
    seed: int
    cancels: float = 0.0
    releases: float = 0.0
    grace: float = 2.0
    # As if on a host of its own: others learn of its death by its silence alone.
    stranger: bool = False


def open_chaos(url: str, options: Mapping[str, Any], subscriber: Any) -> KVStoreQueue:
    return open_queue(
        url,
        run_id=RUN,
        serializer=JSONSerializer(),
        options=QueueOptions(**options),
        subscriber=subscriber,
    )


async def until_open(queue: KVStoreQueue) -> None:
    """However long the store is away."""
    while True:
        with suppress(StoreUnavailable):
            await queue.open_session()
            return


class Worker:
    def __init__(self, orders: WorkerOrders) -> None:
        self._orders = orders
        self._pen = Pen(Path(orders.ledger), orders.process)
        self._dice = random.Random(orders.seed)
        self._fate = Fate(orders.cancels, self._dice)
        self._told_to_stop = asyncio.Event()
        self._told_again = asyncio.Event()

    async def run(self) -> int:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop)
        queue = open_chaos(self._orders.url, self._orders.options, self._hear)
        await until_open(queue)
        try:
            await self._introduce(queue)
            await self._work_until_stopped(queue)
            self._pen.note("closing")
        finally:
            # Who cannot say goodbye goes without; what it held is found by its silence.
            with suppress(StoreUnavailable):
                await queue.close()
        self._pen.note("closed")
        return 0

    async def _introduce(self, queue: KVStoreQueue) -> None:
        session = await queue.open_session()
        self._pen.note("born", session.client.name.decode())

    def _stop(self) -> None:
        (self._told_again if self._told_to_stop.is_set() else self._told_to_stop).set()

    async def _work_until_stopped(self, queue: KVStoreQueue) -> None:
        stream = queue.leases()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._work(queue, stream if number % 2 else None))
                for number in range(self._orders.workers)
            ]
            await self._told_to_stop.wait()
            await queue.shutdown()
            again = group.create_task(self._told_again.wait())
            await self._until_ended(tasks, again)
            again.cancel()

    async def _until_ended(self, tasks: list[asyncio.Task[None]], again: asyncio.Task[Any]) -> None:
        """No longer than the grace, and not when told once more."""
        ending = asyncio.ensure_future(asyncio.wait(tasks))
        grace, first = self._orders.grace, asyncio.FIRST_COMPLETED
        await asyncio.wait([ending, again], timeout=grace, return_when=first)
        # What has not ended is cancelled, and so given back.
        for task in tasks:
            task.cancel()
        await ending

    # --- one worker ------------------------------------------------------------------------------

    async def _work(self, queue: KVStoreQueue, stream: LeaseStream | None) -> None:
        while not self._told_to_stop.is_set():
            lease = await self._take(queue, stream)
            if lease is not None:
                await self._handle(lease)

    async def _take(self, queue: KVStoreQueue, stream: LeaseStream | None) -> Lease | None:
        start = time.monotonic()
        asking = _first(queue) if stream is None else stream.next()
        outcome, answer = await self._fate.run(asking)
        lease: Lease | None = answer
        if lease is not None:
            self._pen.whole("lease", [lease.item[0]], start, outcome, lease.token.hex())
        elif outcome != "ok":
            self._pen.whole("lease", [], start, outcome)
        return lease

    async def _handle(self, lease: Lease) -> None:
        name, seconds = lease.item
        try:
            await self._spend(name, seconds)
        except asyncio.CancelledError:
            self._pen.begin("give_back", [name], lease.token.hex())
            async with lease:
                raise
        again = self._dice.random() < self._orders.releases
        await self._insist("release" if again else "complete", lease, name)

    async def _spend(self, name: str, seconds: float) -> None:
        if is_poison(name):
            await asyncio.sleep(self._dice.uniform(0, seconds))
            self._pen.note("poison", name)
            os._exit(POISONED)
        await asyncio.sleep(seconds)

    async def _insist(self, move: str, lease: Lease, name: str) -> None:
        """Until it is known how it ended. One that was cancelled may change its mind."""
        while (outcome := await self._settle(move, lease, name)) not in {"ok", "lost"}:
            if outcome == "cancelled":
                move = "give_back" if self._dice.random() < _CHANGES_ITS_MIND else move
            else:
                await asyncio.sleep(_PAUSE)

    async def _settle(self, move: str, lease: Lease, name: str) -> str:
        call = self._pen.begin(move, [name], lease.token.hex())
        outcome, _ = await self._fate.run(_move(move, lease, name))
        self._pen.end(call, outcome)
        return outcome

    def _hear(self, event: Event) -> None:
        if isinstance(event, ConsumerReaped):
            self._pen.note("reaped", event.consumer)
        elif isinstance(event, LeasesLost):
            self._pen.note("lost", " ".join(event.request_ids))
        elif isinstance(event, HeartbeatMissed):
            self._pen.note("missed", event.error)
        elif isinstance(event, LeasesReturned):
            self._pen.note("returned", event.leases)


async def _first(queue: KVStoreQueue) -> Lease | None:
    leases = await queue.lease(1, wait=_WAIT)
    return leases[0] if leases else None


async def _move(move: str, lease: Lease, name: str) -> None:
    if move == "release":
        await lease.release(error="again")
    elif move == "give_back":
        await lease.give_back()
    else:
        await lease.complete([_child(child) for child in children_of(name)], result=name)


def _child(name: str) -> Entry:
    return Entry([name, _CHILDS_WORK], id=name, lane=f"child{len(name) % 2}")


# Dozens of them share the processors of one machine here, with the network and with those whose
# calls are timed; elsewhere these would have machines of their own.
_COURTESY = 10


async def main(orders: Mapping[str, Any]) -> int:
    told = WorkerOrders(**orders)
    os.nice(_COURTESY)
    if told.stranger:
        socket.gethostname = lambda: told.process
    return await Worker(told).run()
