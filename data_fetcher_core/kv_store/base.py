"""What a store is: values by key, in order, atomically. It knows nothing of requests.

Two ways to be a store. Write ``transact`` and ``close`` of
:class:`~data_fetcher_core.kv_store.transactional.TransactionalStore`, and the key-value verbs and
the whole queue come with it. Or, for a server that runs scripts next to its data, implement
:class:`KeyValueStore` and :class:`ScriptHost`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable


class Transaction(Protocol):
    """An ordered view of all keys, inside one atomic step. Every verb is a batch."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, ``None`` where there is none."""

    def range(
        self, start: bytes, end: bytes, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """The first ``limit`` pairs with ``start <= key < end``, in key order."""

    def put_many(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Write each pair, over what was there."""

    def delete_many(self, keys: Iterable[bytes]) -> None:
        """Remove each key; one that is not there is no error."""


@runtime_checkable
class CountsKeys(Protocol):
    """A transaction that can count without reading."""

    def count(self, start: bytes, end: bytes) -> int:
        """How many keys there are with ``start <= key < end``."""


class KeyValueStore(ABC):
    """The plain verbs. Values are what JSON holds; ``prefix`` keeps families of keys apart."""

    @abstractmethod
    async def put(
        self, key: str, value: Any, ttl: float | None = None, prefix: str | None = None
    ) -> None:
        """Write ``value``; it disappears after ``ttl`` seconds (``None``: the store's default)."""

    @abstractmethod
    async def get(self, key: str, default: Any = None, prefix: str | None = None) -> Any:
        """The value, or ``default`` where there is none."""

    @abstractmethod
    async def delete(self, key: str, prefix: str | None = None) -> bool:
        """Remove the key; whether it was there."""

    @abstractmethod
    async def exists(self, key: str, prefix: str | None = None) -> bool:
        """Whether the key has a value."""

    @abstractmethod
    async def range_get(
        self,
        start_key: str,
        end_key: str | None = None,
        limit: int | None = None,
        prefix: str | None = None,
    ) -> list[tuple[str, Any]]:
        """The first ``limit`` pairs with ``start_key <= key < end_key``, in key order."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of files, threads and connections. The next verb opens them again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


@runtime_checkable
class ScriptHost(Protocol):
    """A store that runs a script beside its data as one atomic step (Redis)."""

    key_prefix: str

    async def run_script(self, source: str, keys: Sequence[bytes], args: Sequence[Any]) -> Any:
        """Run ``source`` with KEYS and ARGV; foreign errors arrive as :class:`StoreError`."""

    async def block_on(self, keys: Sequence[bytes], timeout: float) -> bytes | None:
        """Wait until one of the lists has an element, take it and return its key; else None."""


@runtime_checkable
class ChangeCounter(Protocol):
    """A store that other processes write to, and that can cheaply tell whether they did."""

    async def change_count(self) -> int:
        """A number that differs after any other process has committed."""
