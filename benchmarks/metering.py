"""What the queue workloads measure, phase by phase. Standard library only: peers import it, too.

Some requests are put in one by one, the rest in the contender's best way for many; then all are
drained, and the clock stops when the last one is settled, not when the worker has shut down.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import urlsplit

from benchmarks.contract import folder_bytes, payload, rate, redis_info

MOST_SINGLES = 2_000


def requests_of(given: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The payloads to be put in one by one, and those for in bulk. No two are alike."""
    every = [payload(given["payload_bytes"], number) for number in range(given["requests"])]
    singles = min(MOST_SINGLES, max(1, len(every) // 5))
    return every[:singles], every[singles:]


class Meter:
    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}

    @contextmanager
    def timed(self, metric: str, count: int) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.metrics[metric] = rate(count, time.perf_counter() - begin)

    def filling(self, count: int) -> AbstractContextManager[None]:
        """While requests are put in, in the best way for many."""
        return self.timed("enqueue_bulk", count)


class RedisMeter(Meter):
    """What phases cost a Redis that is used by nobody else.

    - commands: those of ``INFO total_commands_processed``, what scripts call included
    - round trips: how often the server read from a connection. A pipeline or a script is one; more
      only where it is larger than the server's buffer of 16 KB
    - bytes: what came to the memory in use during the bulk, without what connections hold. By then
      scripts are loaded and connections are open, so that only the requests are counted
    """

    def __init__(self, redis_url: str) -> None:
        super().__init__()
        self._url = redis_url

    def stored_bytes(self) -> int:
        """``INFO`` knows what connections hold too, but only as of a second ago."""
        used = int(redis_info(self._url)["used_memory"])
        return used - connection_bytes(self._url)

    @contextmanager
    def filling(self, count: int) -> Iterator[None]:
        before = self.stored_bytes()
        with self.timed("enqueue_bulk", count):
            yield
        self.metrics["bytes_per_queued"] = (self.stored_bytes() - before) / count

    @contextmanager
    def draining(self, count: int) -> Iterator[None]:
        before = redis_info(self._url)
        with self.timed("drain", count):
            yield
        after = redis_info(self._url)
        for metric, name in (("commands", "commands"), ("round_trips", "reads")):
            counter = f"total_{name}_processed"
            spent = int(after[counter]) - int(before[counter])
            self.metrics[f"{metric}_per_drained"] = spent / count


def connection_bytes(redis_url: str) -> int:
    """What the server holds for its connections at this moment."""
    address = urlsplit(redis_url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(b"CLIENT LIST\r\n")
        with connection.makefile("rb") as answer:
            words = answer.read(int(answer.readline()[1:])).split()
    return sum(int(word[8:]) for word in words if word.startswith(b"tot-mem="))


class FolderMeter(Meter):
    """What a store takes on disk while it is closed, so that no journal is counted in."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder
        self._empty = 0

    def closed_empty(self) -> None:
        self._empty = folder_bytes(self._folder)

    def closed_full(self, count: int) -> None:
        self.metrics["bytes_on_disk"] = (folder_bytes(self._folder) - self._empty) / count


async def share_out(
    items: Iterable[str], senders: int, send: Callable[[str], Awaitable[object]]
) -> None:
    """So many tasks take from one pile: the best way into a queue without a call for many."""
    pile = iter(items)

    async def sender() -> None:
        for item in pile:
            await send(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(senders):
            group.create_task(sender())
