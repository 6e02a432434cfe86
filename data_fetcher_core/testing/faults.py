"""Stores that fail on purpose: before they act, after they acted, or never coming back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, TypeVar

import anyio

from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.kv_store.base import KeyValueStore, ScriptHost, Transaction
from data_fetcher_core.kv_store.transactional import TransactionalStore

T = TypeVar("T")


class Fault(Enum):
    """What goes wrong with one call."""

    BEFORE = "the request is lost: nothing happens"
    AFTER = "the reply is lost: it happened, and nobody knows"
    HANG = "no answer ever comes"


class Faults:
    """Which call of which verb goes wrong. Verbs are the names of a store's methods."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._planned: dict[tuple[str, int], Fault] = {}

    def plan(self, fault: Fault, verb: str, call: int = 1) -> None:
        """Let the ``call``-th call of ``verb`` from now on go wrong."""
        self._planned[verb, self.calls[verb] + call] = fault

    def heal(self) -> None:
        """Forget what was planned."""
        self._planned.clear()

    async def around(self, verb: str, act: Callable[[], Awaitable[T]]) -> T:
        self.calls[verb] += 1
        fault = self._planned.pop((verb, self.calls[verb]), None)
        if fault is Fault.BEFORE:
            raise StoreUnavailable("planned fault: the request was lost")
        if fault is Fault.HANG:
            await anyio.sleep_forever()
        answer = await act()
        if fault is Fault.AFTER:
            raise StoreUnavailable("planned fault: the reply was lost")
        return answer


class FaultyStore(TransactionalStore):
    """A transactional store around another, with :attr:`faults` to plan."""

    verb = "transact"

    def __init__(self, inner: TransactionalStore) -> None:
        super().__init__()
        self.inner = inner
        self.faults = Faults()

    async def transact(self, fn: Callable[[Transaction], T], *, urgent: bool = False) -> T:
        return await self.faults.around("transact", lambda: self.inner.transact(fn, urgent=urgent))

    async def close(self) -> None:
        await self.faults.around("close", self.inner.close)


class FaultyScriptStore(KeyValueStore):
    """The same around a store that runs scripts."""

    verb = "run_script"

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.faults = Faults()
        self.key_prefix: str = inner.key_prefix

    async def run_script(self, source: str, keys: Sequence[bytes], args: Sequence[Any]) -> Any:
        return await self.faults.around(
            "run_script", lambda: self.inner.run_script(source, keys, args)
        )

    async def block_on(self, keys: Sequence[bytes], timeout: float) -> bytes | None:
        found: bytes | None = await self.faults.around(
            "block_on", lambda: self.inner.block_on(keys, timeout)
        )
        return found

    async def put(
        self, key: str, value: Any, ttl: float | None = None, prefix: str | None = None
    ) -> None:
        await self.faults.around("put", lambda: self.inner.put(key, value, ttl, prefix))

    async def get(self, key: str, default: Any = None, prefix: str | None = None) -> Any:
        return await self.faults.around("get", lambda: self.inner.get(key, default, prefix))

    async def delete(self, key: str, prefix: str | None = None) -> bool:
        return bool(await self.faults.around("delete", lambda: self.inner.delete(key, prefix)))

    async def exists(self, key: str, prefix: str | None = None) -> bool:
        return bool(await self.faults.around("exists", lambda: self.inner.exists(key, prefix)))

    async def range_get(
        self,
        start_key: str,
        end_key: str | None = None,
        limit: int | None = None,
        prefix: str | None = None,
    ) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = await self.faults.around(
            "range_get", lambda: self.inner.range_get(start_key, end_key, limit, prefix)
        )
        return found

    async def close(self) -> None:
        await self.faults.around("close", self.inner.close)


def make_faulty(store: KeyValueStore) -> FaultyStore | FaultyScriptStore:
    """A faulty store of the kind that ``store`` is."""
    if isinstance(store, TransactionalStore):
        return FaultyStore(store)
    if isinstance(store, ScriptHost):
        return FaultyScriptStore(store)
    raise TypeError(f"{type(store).__name__} has neither transact() nor run_script()")
