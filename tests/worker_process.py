"""A process that works on a queue, to be killed and stopped: ``python -m tests.worker_process``.

It notes in a ledger what it begins and how that ends, one line each: event, pid and request. A
line is written at once, so what a killed process has noted, it had done.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from data_fetcher_core.core import Entry
from data_fetcher_core.errors import DataFetcherError
from data_fetcher_core.queue import KVStoreQueue, Lease
from tests.fault_support import open_run

_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Orders:
    """What a worker is told when it is started."""

    url: str
    ledger: str
    workers: int = 5
    longest_work: float = 0.01
    cancels: int = 0
    waits_for_word: bool = False
    options: dict[str, Any] = field(default_factory=dict)


class Note(NamedTuple):
    event: str
    pid: int
    name: str


def read_notes(ledger: Path) -> list[Note]:
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return [Note(event, int(pid), name) for event, pid, name in map(str.split, lines)]


class WorkerProcess:
    """One of them, as its parent sees it. The end of the block kills it."""

    def __init__(self, orders: Orders) -> None:
        command = [sys.executable, "-W", "error", "-m", "tests.worker_process"]
        self.process = subprocess.Popen(
            [*command, json.dumps(asdict(orders))],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL, and not yet awaited by its parent: it stays a zombie."""
        self.process.kill()

    def end(self) -> None:
        self.process.kill()
        self.process.wait(20)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def end_all(workers: Iterable[WorkerProcess]) -> None:
    for worker in workers:
        worker.end()


# --- inside the process --------------------------------------------------------------------------


class Work:
    def __init__(self, orders: Orders, queue: KVStoreQueue, ledger: int) -> None:
        self._orders = orders
        self._queue = queue
        self._ledger = ledger
        self._cancels_left = orders.cancels
        self._dice = random.Random()
        self._word = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._orders.workers):
                group.create_task(self._work())
            if self._orders.waits_for_word:
                await asyncio.to_thread(sys.stdin.readline)
                self._word.set()

    async def _work(self) -> None:
        async for lease in self._queue.leases(until="drained"):
            self._note("begun", lease)
            self._note(await self._end_of(lease), lease)

    async def _end_of(self, lease: Lease) -> str:
        handling = asyncio.ensure_future(self._handle(lease))
        if self._cancels_left > 0 and self._dice.random() < 0.5:
            self._cancels_left -= 1
            moment = self._dice.uniform(0, 2 * self._orders.longest_work)
            await asyncio.wait([handling], timeout=moment)
            handling.cancel()
        await asyncio.wait([handling])
        if handling.cancelled():
            return "cancelled"
        error = handling.exception()
        if isinstance(error, DataFetcherError):
            return type(error).__name__
        return handling.result()

    async def _handle(self, lease: Lease) -> str:
        async with lease:
            if self._orders.waits_for_word:
                print("holding", flush=True)
                await self._word.wait()
            await asyncio.sleep(self._dice.uniform(0, self._orders.longest_work))
            await lease.complete(_links(lease.item), result=lease.id)
            return "done"
        return lease.state.value  # another has the request now: the block ends, and says no more

    def _note(self, event: str, lease: Lease) -> None:
        os.write(self._ledger, f"{event} {os.getpid()} {lease.id}\n".encode())


def _links(depth: int) -> list[Entry]:
    """A page has as many links below it as its item says."""
    return [Entry(depth - 1, lane=f"lane{depth % 3}")] if depth > 0 else []


async def main(orders: Orders) -> None:
    ledger = os.open(orders.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    async with open_run(orders.url, **orders.options) as queue:
        await Work(orders, queue, ledger).run()


if __name__ == "__main__":
    asyncio.run(main(Orders(**json.loads(sys.argv[1]))))
