"""What the tests of the queue share: crashing, letting time pass, cancelling, looking inside."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
)
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from data_fetcher_core.core import DeadLetter, QueueStats
from data_fetcher_core.errors import LeaseLost
from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.redis import RedisStore
from data_fetcher_core.kv_store.transactional import TransactionalStore
from data_fetcher_core.queue import KVStoreQueue, Lease
from data_fetcher_core.testing import ManualClock
from tests.waiting import until

PATIENCE = 10.0
_END = b"\xff" * 32


# --- short ways to ask -------------------------------------------------------------------------


def items(leases: Iterable[Lease]) -> list[Any]:
    return [lease.item for lease in leases]


async def letters(queue: KVStoreQueue) -> list[DeadLetter]:
    return [letter async for letter in queue.dead_letters()]


async def places(queue: KVStoreQueue) -> dict[str, int]:
    """How many are where, those places left out that hold nothing."""
    stats = await queue.stats()
    counts = {name: getattr(stats, name) for name in ("ready", "delayed", "leased", "dead")}
    return {name: count for name, count in counts.items() if count}


async def accounted(queue: KVStoreQueue) -> QueueStats:
    """The counts, after making sure that they are true and that nothing is missing."""
    assert await queue.recount() == {}
    stats = await queue.stats()
    assert stats.unaccounted == 0, stats
    return stats


async def is_lost(settling: Awaitable[Any]) -> bool:
    try:
        await settling
    except LeaseLost:
        return True
    return False


async def drain(queue: KVStoreQueue) -> list[Any]:
    """Everything that can be taken now, corrupt requests in between or not."""
    taken: list[Any] = []
    while (await queue.stats()).ready:
        taken += await queue.dequeue(100)
        await settled(queue)
    return taken


# --- crashing ----------------------------------------------------------------------------------


async def client_of(queue: KVStoreQueue) -> Any:
    return (await queue.open_session()).client


async def crash(queue: KVStoreQueue) -> bytes:
    """Stop a consumer as the death of its process does: nothing is said to the store. Its name."""
    client = await client_of(queue)
    await client.tasks.cancel()
    await client.batches.finish()
    queue._session = None
    name: bytes = client.name
    return name


async def outlive(dead: KVStoreQueue, survivor: KVStoreQueue, clock: ManualClock) -> None:
    """``dead`` crashes; ``survivor`` notices by its silence, and takes up what it held."""
    await crash(dead)
    await silence(survivor, clock)


async def silence(survivor: KVStoreQueue, clock: ManualClock, duration: float = 30.0) -> None:
    await survivor.sweep()
    clock.advance(duration)
    await survivor.sweep()


# --- letting time pass -------------------------------------------------------------------------


async def impatient(queue: KVStoreQueue, op_timeout: float = 0.1) -> None:
    """Let a queue that is open give a store that is away no longer than this.

    Not from the start: a busy machine's disk may need longer for what a test prepares.
    """
    options = dataclasses.replace(queue._options, op_timeout=op_timeout)
    queue._options = (await client_of(queue)).options = options


async def eventually(condition: Callable[[], Awaitable[bool]], within: float = PATIENCE) -> None:
    async with asyncio.timeout(within):
        while not await condition():  # noqa: ASYNC110 - looked at from outside, nothing signals it
            await asyncio.sleep(0.002)


async def as_time_passes(
    clock: ManualClock,
    condition: Callable[[], Awaitable[bool]],
    step: float = 0.5,
    within: float = PATIENCE,
) -> None:
    """Let the clock run, a little at a time, until ``condition`` holds."""

    async def holds() -> bool:
        clock.advance(step)
        await spin()
        return await condition()

    await eventually(holds, within)


async def spin(steps: int = 20) -> None:
    """Let every task that can go on do so."""
    for _ in range(steps):
        await asyncio.sleep(0)


async def asleep(*queues: KVStoreQueue) -> None:
    """Wait until in each of them somebody has found nothing, and sleeps until something comes."""
    for queue in queues:
        rooms = (await queue.open_session()).rooms._rooms
        await until(partial(_is_somebody_asleep, rooms))
    # Whoever has lain down may have a few steps left until the clock or the store knows of it.
    await spin()


def _is_somebody_asleep(rooms: Mapping[Any, Any]) -> bool:
    return any(room.nap is not None for room in rooms.values())


async def settled(queue: KVStoreQueue) -> None:
    """Wait until what the queue does in the background has arrived."""
    client = await client_of(queue)
    await client.batches.finish()


async def beat_twice(queue: KVStoreQueue) -> None:
    """Whatever was still on its way at the first is known at the second."""
    await settled(queue)
    await queue.sweep()
    await queue.sweep()
    await settled(queue)


# --- cancelling --------------------------------------------------------------------------------


@asynccontextmanager
async def background(work: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """``work`` runs meanwhile; cancelled at the end if it still does, and always awaited."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def cancelled_after(steps: int, work: Coroutine[Any, Any, Any]) -> bool:
    """Cancel ``work`` after so many steps of the loop; whether it had not ended by itself."""
    task = asyncio.ensure_future(work)
    for _ in range(steps):
        await asyncio.sleep(0)
        if task.done():
            break
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return task.cancelled()


class CancelAt:
    """Awaits ``work``, and cancels the task at the n-th suspension; ``reached`` says if it came."""

    def __init__(self, work: Awaitable[Any], nth: int) -> None:
        self._work = work
        self._left = nth
        self.reached = False

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        error: BaseException | None = None
        while True:
            try:
                waited_for = next(steps) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                # Its traceback would keep alive all that the work held.
                error = None
            self._count_down()
            try:
                yield waited_for
            except BaseException as thrown:  # noqa: BLE001 - handed on to the work
                error = thrown

    def _count_down(self) -> None:
        self._left -= 1
        task = asyncio.current_task()
        if self._left == 0 and task is not None:
            self.reached = True
            task.cancel()


def foreign_tasks(known: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """Tasks that run now and did not run before."""
    return {task for task in asyncio.all_tasks() if not task.done()} - known


# --- inside a store of Redis ---------------------------------------------------------------------


def give_time(store: RedisStore, op_timeout: float) -> None:
    """Let a store wait for so long from now on: where it is not asked how soon it is answered."""
    store._op_timeout = op_timeout


def in_use(store: RedisStore) -> int:
    """Connections that are lent to somebody now."""
    server: Any = store._sessions.server()
    return len(server._pool._busy)


# --- looking inside a transactional store ------------------------------------------------------


async def everything(store: TransactionalStore) -> dict[bytes, bytes]:
    return dict(await store.transact(lambda tx: tx.range(b"", _END)))


async def overwrite(store: TransactionalStore, key: bytes, value: bytes) -> None:
    def step(tx: Transaction) -> None:
        tx.put_many([(key, value)])

    await store.transact(step)


async def erase(store: TransactionalStore) -> None:
    def step(tx: Transaction) -> None:
        tx.delete_many([key for key, _ in tx.range(b"", _END)])

    await store.transact(step)


def flips(value: bytes) -> Iterable[tuple[int, bytes]]:
    """``value`` with one bit turned, for every byte of it."""
    for at, bit in zip(range(len(value)), itertools.cycle(range(8))):
        yield at, value[:at] + bytes([value[at] ^ 1 << bit]) + value[at + 1 :]
