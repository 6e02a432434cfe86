"""A process that runs a fetcher with a loader that misbehaves: ``python -m tests.fetch_process``.

It notes in a ledger which requests it begins and which it finishes, a line each, at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from data_fetcher_core.core import FetcherRecipe, FetchRunContext, Page, RequestMeta
from data_fetcher_core.events import Event, Fetched
from data_fetcher_core.fetcher import Fetcher, FetcherOptions
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.queue import QueueOptions
from tests.fetching import ListLocator, page, plan_of


@dataclass(frozen=True)
class Orders:
    """``block`` says for how many seconds a URL keeps the loop from running."""

    store: str
    ledger: str
    urls: Sequence[str]
    block: dict[str, float] = field(default_factory=dict)
    work: float = 0.01
    concurrency: int = 4
    queue: dict[str, Any] = field(default_factory=dict)

    def arguments(self) -> list[str]:
        return [json.dumps(asdict(self))]


class Note(NamedTuple):
    event: str
    pid: int
    subject: str


def read_notes(ledger: Path) -> list[Note]:
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return [Note(event, int(pid), subject) for event, pid, subject in map(str.split, lines)]


class Ledger:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, event: str, subject: str) -> None:
        os.write(self._file, f"{event} {os.getpid()} {subject}\n".encode())

    def hear(self, event: Event) -> None:
        subject = event.url if isinstance(event, Fetched) else "-"
        self.note(type(event).__name__, subject)


class Misbehaving:
    """A loader that takes its time, and sometimes everybody's."""

    def __init__(self, orders: Orders, ledger: Ledger) -> None:
        self._orders = orders
        self._ledger = ledger

    async def load(
        self, request: RequestMeta, storage: Any, ctx: FetchRunContext, recipe: FetcherRecipe
    ) -> list[Page]:
        url = str(request.url)
        self._ledger.note("begun", url)
        await asyncio.sleep(self._orders.work)
        if seconds := self._orders.block.get(url):
            self._ledger.note("blocks", url)
            time.sleep(seconds)  # noqa: ASYNC251 - that is what it is for
        return [page(request)]


async def main(orders: Orders) -> None:
    ledger = Ledger(orders.ledger)
    options = FetcherOptions(queue=QueueOptions(**orders.queue))
    async with create_kv_store(orders.store) as store:
        plan = plan_of(
            store,
            [ListLocator(orders.urls)],
            Misbehaving(orders, ledger),
            concurrency=orders.concurrency,
        )
        result = await Fetcher(options, subscriber=ledger.hear).run(plan)
    assert result.is_finished


if __name__ == "__main__":
    asyncio.run(main(Orders(**json.loads(sys.argv[1]))))
