"""What the tests of the SQLite store share: connections that misbehave, and other processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from tests.cores import without_a_core
from tests.harness import background
from tests.waiting import until


def sqlite_error(code: int, name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(name)
    error.sqlite_errorcode = code
    error.sqlite_errorname = name
    return error


class Tap:
    """Makes connections that note every statement, and fail or do something first on demand."""

    def __init__(self, *setup: str) -> None:
        self.statements: list[str] = []
        self.before: dict[str, Callable[[], None]] = {}
        self._setup = setup

    def fail(self, prefix: str, error: BaseException, times: int = 1) -> None:
        left = [error] * times

        def raise_once() -> None:
            if left:
                raise left.pop()

        self.before[prefix] = raise_once

    def count(self, prefix: str) -> int:
        return sum(statement.startswith(prefix) for statement in self.statements)

    def connect(self, uri: str) -> sqlite3.Connection:
        tap = self

        class Tapped(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                tap.statements.append(sql)
                for prefix, act in list(tap.before.items()):
                    if sql.startswith(prefix):
                        act()
                return super().execute(sql, parameters)

        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            factory=Tapped,
        )
        for statement in self._setup:
            sqlite3.Connection.execute(connection, statement)
        return connection


class Gate:
    """A function that stays inside its transaction until it is let out."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._out = threading.Event()

    def __call__(self, tx: Transaction) -> None:
        self.entered.set()
        assert self._out.wait(20)

    def open(self) -> None:
        self._out.set()


def put(key: bytes, value: bytes = b"") -> Callable[[Transaction], None]:
    return lambda tx: tx.put_many([(key, value)])


async def everything(store: SQLiteStore) -> dict[bytes, bytes]:
    return dict(await store.transact(lambda tx: tx.range(b"", b"\xff" * 20)))


async def as_one_group(store: SQLiteStore, *steps: Callable[[Transaction], Any]) -> list[Any]:
    """Run all ``steps`` in the group after one that is held up."""
    gate = Gate()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.transact(gate))
        await until(gate.entered.is_set)
        results = [tasks.create_task(outcome(store, step)) for step in steps]
        await asyncio.sleep(0)
        gate.open()
    return [task.result() for task in results]


async def outcome(store: SQLiteStore, step: Callable[[Transaction], Any]) -> Any:
    try:
        return await store.transact(step)
    except Exception as error:  # noqa: BLE001 - it is what is looked at
        return error


def integrity(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()


def writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("sqlite-writer")]


@asynccontextmanager
async def own_lag() -> AsyncIterator[list[float]]:
    """How late the loop was, each time that it was asked, for reasons of its own.

    Other processes of a busy machine may keep it from a core for longer than the bound; the
    system tells for how long a thread was ready and had none, and that is no fault of the loop.
    """
    lags: list[float] = [0.0]

    async def tick() -> None:
        while True:
            start, kept_waiting = time.monotonic(), without_a_core()
            await asyncio.sleep(0.005)
            late = time.monotonic() - start - 0.005
            lags.append(late - (without_a_core() - kept_waiting))

    async with background(tick()):
        yield lags


class Child:
    """Another Python process; it says lines, and is told lines."""

    def __init__(self, code: str, *args: object, wrap: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*wrap, sys.executable, "-u", "-c", _PRELUDE + dedent(code), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def expect(self, line: str) -> None:
        heard = self.hear()
        assert heard == line, (heard, self.process.poll())

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def rest(self, within: float = 60.0) -> str:
        """What it still says until it ends; it must end well."""
        said, _ = self.process.communicate(timeout=within)
        assert self.process.returncode == 0, said
        return str(said)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


@contextmanager
def child(code: str, *args: object, wrap: tuple[str, ...] = ()) -> Iterator[Child]:
    started = Child(code, *args, wrap=wrap)
    try:
        yield started
    finally:
        started.kill()
        for pipe in (started.process.stdin, started.process.stdout):
            if pipe is not None:
                pipe.close()


# Keeps what it is told line by line. Time passes, so that a full disk is looked at again.
KEEP = """
from data_fetcher_core.testing import ManualClock

clock = ManualClock()
store = SQLiteStore(sys.argv[1], clock=clock)
while line := wait().strip():
    clock.advance(2.0)
    try:
        asyncio.run(store.transact(lambda tx: tx.put_many([(line.encode(), bytes(300))])))
        say("kept")
    except DataFetcherError as error:
        say(type(error).__name__)
asyncio.run(store.close())
"""

_PRELUDE = """
import asyncio, os, random, signal, sqlite3, sys, threading, time
from pathlib import Path
from data_fetcher_core.errors import *
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from tests.waiting import until
def say(*words): print(*words, flush=True)
def wait(): return sys.stdin.readline()
"""
