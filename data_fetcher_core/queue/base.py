"""The plain face of a queue, and of a serializer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol


class RequestQueue(Protocol):
    """Six verbs that replace ``asyncio.Queue`` by something that survives its process."""

    async def enqueue(self, items: Iterable[object]) -> int:
        """Take items in; how many were new."""

    async def dequeue(self, max_items: int = 1) -> list[Any]:
        """Take items out for good: at most once each."""

    async def size(self) -> int:
        """How many wait, ready or delayed."""

    async def peek(self, max_items: int = 1) -> list[Any]:
        """The next items, left where they are."""

    async def clear(self) -> int:
        """Drop all that wait; how many went."""

    async def close(self) -> None:
        """Give back what is leased. The queue may be used again."""


class Serializer(Protocol):
    """Anything that turns an item into text and back."""

    def dumps(self, obj: Any) -> str:
        """``obj`` as text."""

    def loads(self, data: str) -> Any:
        """The object that ``data`` was made of."""
