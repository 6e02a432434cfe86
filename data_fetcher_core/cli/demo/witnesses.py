"""Reading what the crawl left behind: its index, its files, and the store."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import orjson

from data_fetcher_core.cli.demo.account import Kept
from data_fetcher_core.cli.demo.site import page_at
from data_fetcher_core.cli.opening import opened
from data_fetcher_core.cli.places import Place
from data_fetcher_core.cli.registry import remove, run_queue
from data_fetcher_core.core import QueueStats

_INDEX = "index.jsonl"


class Witnesses:
    """Where one crawl of the site at ``url`` keeps its things."""

    def __init__(self, place: Place, run_id: str, out: Path, url: str) -> None:
        self._place = place
        self._run_id = run_id
        self._out = out
        self._url = url

    async def kept(self) -> list[Kept]:
        """The lines of the index, each with what its file holds."""
        return await anyio.to_thread.run_sync(lambda: [self._kept(line) for line in self._lines()])

    async def done(self) -> tuple[QueueStats, frozenset[int]]:
        """What is settled: lines of the index, and results that are still on their way to it."""
        async with opened(self._place) as store, run_queue(store, self._run_id) as queue:
            stats, last = await queue.stats(), 0
            lines = await anyio.to_thread.run_sync(lambda: list(self._lines()))
            while results := await queue.results(after=last):
                lines += [line for _, line in results]
                last = results[-1][0]
        pages = (self._page(line) for line in lines)
        return stats, frozenset(page for page in pages if page is not None)

    async def forget(self) -> None:
        """Leave a store that is not ours as it was."""
        async with opened(self._place) as store:
            async with run_queue(store, self._run_id) as queue:
                await queue.forget()
            await remove(store, self._run_id)

    def _lines(self) -> Iterator[Any]:
        """Whole lines only: a kill may leave the beginning of one."""
        index = self._out / _INDEX
        whole = index.read_bytes().rpartition(b"\n")[0] if index.exists() else b""
        return (orjson.loads(line) for line in whole.splitlines())

    def _kept(self, line: Any) -> Kept:
        file = self._out / (line.get("path") or _INDEX)
        found = sha256(file.read_bytes()).hexdigest() if file.is_file() else None
        return Kept(self._page(line), line.get("digest"), found)

    def _page(self, line: Any) -> int | None:
        url = str(line.get("url"))
        return page_at(url.removeprefix(self._url)) if url.startswith(self._url) else None
