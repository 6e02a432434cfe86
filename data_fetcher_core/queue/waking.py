"""Waking those who wait on an ordered store: at once in this process, soon in another.

Queues that share a store object share its wake-ups. Where other processes write too, the store's
change counter is looked at while somebody waits, and never otherwise. That another process has
written something is no news by itself: it may be a heartbeat, or a look at the queue that found
nothing. Two who wait would wake each other with theirs for ever.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, ref

import anyio

from data_fetcher_core.clock import Clock
from data_fetcher_core.kv_store.base import ChangeCounter
from data_fetcher_core.kv_store.transactional import TransactionalStore
from data_fetcher_core.queue.ordered_keys import OrderedKeys
from data_fetcher_core.queue.racing import race

LOOK_EVERY = 0.05


class Elsewhere:
    """What other processes do to a queue, as far as it concerns who waits.

    All that does changes the state of the queue: how many are where, and the number of places
    that were ever given.
    """

    def __init__(self, store: TransactionalStore, namespace: bytes) -> None:
        # Weak: what the store is looked up by must not keep it.
        self._store = ref(store)
        self._state_key = OrderedKeys(namespace).state
        self._seen: int | None = None
        self._state: bytes | None = None

    async def has_news(self) -> bool:
        store: Any = self._store()
        seen = await store.change_count()
        if seen == self._seen:
            return False
        # The counter was asked first: what is written from now on moves it again.
        (state,) = await store.transact(lambda tx: tx.get_many([self._state_key]))
        has_news = self._seen is None or state != self._state
        self._seen, self._state = seen, state
        return has_news


class Wakeups:
    """Counts what may have changed, and lets waiters sleep until the count moves."""

    def __init__(self, elsewhere: Elsewhere | None) -> None:
        self._elsewhere = elsewhere
        self._count = 0
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
        elsewhere = self._elsewhere
        look = [] if elsewhere is None else [lambda: self._look(mark, elsewhere)]
        await race(lambda: self._local(mark), lambda: clock.sleep(timeout), *look)

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

    async def _look(self, mark: int, elsewhere: Elsewhere) -> None:
        while self._count == mark:
            # Before the first look, too: beside a busy process there is always news.
            await anyio.sleep(LOOK_EVERY)
            if await elsewhere.has_news():
                self.notify()
                return


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_shared: WeakKeyDictionary[TransactionalStore, dict[bytes, Wakeups]] = WeakKeyDictionary()


def wakeups_of(store: TransactionalStore, namespace: bytes) -> Wakeups:
    """The wake-ups that all queues of this namespace on this store object share."""
    of_store = _shared.setdefault(store, {})
    if namespace not in of_store:
        shared = isinstance(store, ChangeCounter)
        of_store[namespace] = Wakeups(Elsewhere(store, namespace) if shared else None)
    return of_store[namespace]
