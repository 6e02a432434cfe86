"""Waking those who wait on an ordered store: at once in this process, soon in another.

Queues that share a store object share its wake-ups. Where other processes write too, the store's
change counter is looked at while somebody waits, and never otherwise.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from weakref import WeakKeyDictionary

import anyio

from data_fetcher_core.clock import Clock
from data_fetcher_core.kv_store.base import ChangeCounter
from data_fetcher_core.kv_store.transactional import TransactionalStore
from data_fetcher_core.queue.racing import race

LOOK_EVERY = 0.05


class Wakeups:
    """Counts what may have changed, and lets waiters sleep until the count moves."""

    def __init__(self, counter: ChangeCounter | None) -> None:
        self._counter = counter
        self._count = 0
        self._foreign: int | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        # Threads with loops of their own may share a store object.
        self._lock = threading.Lock()

    def mark(self) -> int:
        return self._count

    def notify(self) -> None:
        with self._lock:
            self._count += 1
            waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            # The loop of another thread may have ended meanwhile, and its waiter with it.
            with suppress(RuntimeError):
                waiter.get_loop().call_soon_threadsafe(_finish, waiter)

    async def wait(self, mark: int, timeout: float, clock: Clock) -> None:
        """Return once the count has moved on from ``mark``, or after ``timeout``."""
        await race(
            lambda: self._local(mark), lambda: clock.sleep(timeout), lambda: self._look(mark)
        )

    async def _local(self, mark: int) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._count != mark:
                return
            self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    async def _look(self, mark: int) -> None:
        if self._counter is None:
            await anyio.sleep_forever()
            return
        while self._count == mark:
            seen = await self._counter.change_count()
            if seen != self._foreign:
                self._foreign = seen
                self.notify()
                return
            await anyio.sleep(LOOK_EVERY)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_shared: WeakKeyDictionary[TransactionalStore, dict[bytes, Wakeups]] = WeakKeyDictionary()


def wakeups_of(store: TransactionalStore, namespace: bytes) -> Wakeups:
    """The wake-ups that all queues of this namespace on this store object share."""
    of_store = _shared.setdefault(store, {})
    if namespace not in of_store:
        of_store[namespace] = Wakeups(store if isinstance(store, ChangeCounter) else None)
    return of_store[namespace]
