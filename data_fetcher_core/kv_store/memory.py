"""The store that lives and dies with its process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from sortedcontainers import SortedDict

from data_fetcher_core.clock import SYSTEM_CLOCK, Clock
from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.transactional import TransactionalStore

T = TypeVar("T")


class MemoryStore(TransactionalStore):
    """An ordered dictionary. ``transact`` runs at once, without a suspension in the middle.

    A lock keeps the steps of several threads apart, each with an event loop of its own; it is
    held for no longer than a step takes.
    """

    def __init__(self, *, default_ttl: float | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(default_ttl=default_ttl, clock=clock)
        self._data: SortedDict[bytes, bytes] = SortedDict()
        self._lock = threading.Lock()

    async def transact(self, fn: Callable[[Transaction], T], *, urgent: bool = False) -> T:
        with self._lock:
            tx = _MemoryTransaction(self._data)
            try:
                return fn(tx)
            except BaseException:
                tx.undo()
                raise

    async def close(self) -> None:
        """Nothing to let go of: what is stored stays until the store itself is dropped."""

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._data)} keys)"


class _MemoryTransaction:
    """Writes go straight to the data; what they replaced is remembered, to be put back."""

    def __init__(self, data: SortedDict[bytes, bytes]) -> None:
        self._data = data
        self._replaced: dict[bytes, bytes | None] = {}

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self._data.get
        return [get(key) for key in keys]

    def range(
        self, start: bytes, end: bytes, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        keys = self._data.irange(start, end, inclusive=(True, False))
        return [(key, self._data[key]) for key in islice(keys, limit)]

    def put_many(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        for key, value in pairs:
            self._replaced.setdefault(key, self._data.get(key))
            self._data[key] = value

    def delete_many(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            old = self._data.pop(key, None)
            if old is not None:
                self._replaced.setdefault(key, old)

    def undo(self) -> None:
        for key, old in self._replaced.items():
            if old is None:
                self._data.pop(key, None)
            else:
                self._data[key] = old
