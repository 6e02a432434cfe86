"""From the results of a run to the index in its storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from data_fetcher_core.clock import Clock
from data_fetcher_core.core import Storage
from data_fetcher_core.fetcher.pausing import Pauses
from data_fetcher_core.queue import KVStoreQueue

_INTERVAL = 1.0
_PAGE = 1_000
_MANY = (list, tuple)


def has_index(storage: Any) -> TypeGuard[Storage]:
    """Whether the storage keeps an index; looked up on its class, for a mock has everything."""
    return callable(getattr(type(storage), "append_index", None))


def index_entry(result: Any) -> Mapping[str, Any]:
    """The line of what a loader gave: that of the first page in it."""
    for page in result if isinstance(result, _MANY) else (result,):
        if callable(getattr(type(page), "index_entry", None)):
            entry: Mapping[str, Any] = page.index_entry()
            return entry
    return {}


class Exporter:
    """Writes the index from the run's results.

    Any process may do so at any time: the storage writes each number once, and a result is
    dropped from the store only after it is safely written.
    """

    def __init__(self, queue: KVStoreQueue, storage: Storage, clock: Clock, pauses: Pauses) -> None:
        self._queue = queue
        self._storage = storage
        self._clock = clock
        self._pauses = pauses
        self._written = 0

    async def run(self) -> None:
        while True:
            await self._clock.sleep(_INTERVAL)
            while await self._export_page():
                pass

    async def finish(self) -> None:
        """All that there is."""
        while await self._export_page():
            pass
        entries = await self._page()
        if entries:
            await self._pauses.insist(lambda: self._storage.finish_index(entries))

    async def _export_page(self) -> bool:
        """Whether there may be more."""
        entries = await self._page()
        if not entries:
            return False
        written = await self._pauses.insist(lambda: self._storage.append_index(entries))
        if written <= self._written:
            return False
        self._written = min(written, entries[-1][0])
        await self._pauses.insist(lambda: self._queue.trim_results(self._written), needs_room=False)
        return len(entries) == _PAGE

    async def _page(self) -> list[tuple[int, Any]]:
        """The next results, which may come in parts: fewer than a page only at the end."""
        entries: list[tuple[int, Any]] = []
        while (missing := _PAGE - len(entries)) > 0:
            after = entries[-1][0] if entries else self._written
            found = await self._queue.results(after, missing)
            if not found:
                break
            entries += found
        return entries
