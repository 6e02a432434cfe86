"""A store of its own for a crowd, and what it holds, by weight."""

from __future__ import annotations

import gc
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.servers import RedisServer

MEGABYTE = 2**20


@dataclass(frozen=True)
class Weight:
    entries: int
    """Keys of the server, or rows of the file."""
    entries_bytes: int
    holder_bytes: int
    """All of the server, or of the process that has the file open."""
    objects: int
    """Of Python in this process."""


class Place(Protocol):
    url: str
    entry: str
    holder: str
    most_growth: int
    """Of the holder, in MB: what it keeps ready for the next time."""

    def entries(self) -> tuple[int, int]:
        """How many, and the bytes of all."""

    def holder_bytes(self) -> int: ...


class RedisPlace:
    entry = "keys"
    holder = "server"
    most_growth = 1

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.url = server.url

    def entries(self) -> tuple[int, int]:
        with self._server.client() as client:
            steps = client.pipeline(transaction=False)
            for key in client.keys("*"):
                steps.memory_usage(key, samples=0)
            sizes = steps.execute()
        return len(sizes), sum(sizes)

    def holder_bytes(self) -> int:
        """Buffers of connections come and go."""
        with self._server.client() as client:
            memory = client.info("memory")
        return int(memory["used_memory"] - memory["mem_clients_normal"])


class SQLitePlace:
    entry = "rows"
    holder = "process"
    most_growth = 24

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}"

    def entries(self) -> tuple[int, int]:
        with closing(sqlite3.connect(self._path)) as connection:
            found = connection.execute("SELECT count(*), sum(length(k) + length(v)) FROM kv")
            count, size = found.fetchone()
        return count, size

    def holder_bytes(self) -> int:
        """What is resident; 0 where the system does not tell."""
        told = Path("/proc/self/statm")
        if not told.exists():
            return 0
        return int(told.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def open_place(kind: str, folder: Path) -> Iterator[Place]:
    if kind == "sqlite":
        yield SQLitePlace(folder / "run.db")
        return
    with RedisServer(folder) as server:
        yield RedisPlace(server)


def weigh(place: Place) -> Weight:
    gc.collect()
    objects = sys.getallocatedblocks()
    return Weight(*place.entries(), place.holder_bytes(), objects)
