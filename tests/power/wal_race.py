"""Processes that write and checkpoint one file at the same time (F47).

SQLite before 3.51.3 corrupts a database when one process writes while another resets the
write-ahead log. The store keeps them apart by a lock of its own; here each statement that does
either leaves a mark for as long as it runs, so that two at once are seen even where nothing broke.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from data_fetcher_core.errors import StoreError
from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.kv_store.sqlite.companion import Companion
from tests.evidence import Evidence
from tests.power.record import memory_directory
from tests.power.workload import DATABASE
from tests.sqlite_support import everything

FAULT = "F47"
_PROCESSES = 2
_CALLERS = 6
_MARKED = ("COMMIT", "PRAGMA wal_checkpoint")
_ROOT = Path(__file__).parents[2]
_TOTAL = b"total"


class Marks:
    """Who is at the log just now, for all processes to see; and how often that was two of them."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name("at-the-log")
        self.together = 0

    @contextmanager
    def at_the_log(self) -> Iterator[None]:
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            self.together += 1
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                self._path.unlink()

    def connect(self, uri: str) -> sqlite3.Connection:
        marks = self

        class Marked(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                if not sql.startswith(_MARKED):
                    return super().execute(sql, parameters)
                with marks.at_the_log():
                    return super().execute(sql, parameters)

        how: dict[str, Any] = {"uri": True, "timeout": 0, "check_same_thread": False}
        made = sqlite3.connect(uri, isolation_level=None, factory=Marked, **how)
        # SQLite's own checkpoints come with a COMMIT, and as often as can be.
        sqlite3.Connection.execute(made, "PRAGMA wal_autocheckpoint = 10")
        return made


async def _write(path: Path, name: str, seconds: float) -> dict[str, int]:
    """Count up one number together with the others; what this process was told it did."""
    marks, done, end = Marks(path), 0, time.monotonic() + seconds

    async def caller(store: SQLiteStore, number: int) -> None:
        nonlocal done

        def add(tx: Transaction) -> None:
            total = int(tx.get_many([_TOTAL])[0] or 0) + 1
            tx.put_many([(_TOTAL, b"%d" % total), (key, os.urandom(random.randrange(2000)))])

        key = f"{name}-{number}".encode()
        for _ in range(random.randrange(1, 400)):
            if time.monotonic() >= end:
                return
            with suppress(*_tolerated()):
                await store.transact(add)
                done += 1

    while time.monotonic() < end:
        async with SQLiteStore(path, reserve_bytes=65_536, connect=marks.connect) as store:
            await asyncio.gather(*(caller(store, number) for number in range(_CALLERS)))
    return {"done": done, "together": marks.together}


def _unlocked() -> bool:
    return "unlocked" in sys.argv


def _tolerated() -> tuple[type[Exception], ...]:
    """Without the lock they are in each other's way."""
    return (StoreError,) if _unlocked() else ()


@contextmanager
def _writers(path: Path, seconds: float, *how: str) -> Iterator[list[subprocess.Popen[str]]]:
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.power.wal_race", path, str(number), str(seconds), *how],
            cwd=_ROOT, text=True, stdout=subprocess.PIPE,
        )
        for number in range(_PROCESSES)
    ]  # fmt: skip
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait(10)
            if process.stdout is not None:
                process.stdout.close()


class Looker:
    """A reader that takes no lock of ours."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(path.name + "-wal")
        self._last = 0
        self.looks = 0
        self.damaged = 0
        self.resets = 0

    def look(self) -> None:
        if not self._path.exists():
            return
        self.looks += 1
        with closing(sqlite3.connect(self._path, timeout=10)) as connection:
            (said,) = connection.execute("PRAGMA integrity_check").fetchone()
        self.damaged += said != "ok"
        self._count_resets()

    def _count_resets(self) -> None:
        """The log's header says how often it was begun again; a new file counts from its own."""
        with suppress(FileNotFoundError), self._log.open("rb") as log:
            number = int.from_bytes(log.read(16)[12:], "big")
            self.resets += number - self._last if number >= self._last else number
            self._last = number


def run_writers(
    looker: Looker, path: Path, seconds: float, say: Callable[[str], None], *how: str
) -> dict[str, int]:
    """What the writers did, in sum."""
    begun = time.monotonic()
    with _writers(path, seconds, *how) as writers:
        while any(writer.poll() is None for writer in writers):
            assert time.monotonic() < begun + seconds + 60, "the writers do not end"
            time.sleep(min(0.5, seconds / 10))
            looker.look()
            say(f"{time.monotonic() - begun:.0f} of {seconds:.0f} s, {looker.damaged} damages seen")
        told = [json.loads(writer.communicate()[0] or "{}") for writer in writers]
    return {what: sum(one[what] for one in told) for what in told[0]}


def race(shows: Evidence, seconds: float, say: Callable[[str], None] = lambda _: None) -> None:
    with tempfile.TemporaryDirectory(dir=memory_directory(), prefix="power-") as place:
        path = Path(place, DATABASE)
        looker = Looker(path)
        sums = run_writers(looker, path, seconds, say)
        looker.look()
        counted = asyncio.run(_total(path))
    shows(FAULT, "looks that found the file damaged", looker.damaged, exactly=0)
    shows(FAULT, "acknowledged commits lost", sums["done"] - counted, exactly=0)
    shows(FAULT, "moments with two at the log", sums["together"], exactly=0)
    shows(FAULT, "commits of two processes", sums["done"], at_least=100)
    shows(FAULT, "resets of the log meanwhile", looker.resets, at_least=10)


async def _total(path: Path) -> int:
    async with SQLiteStore(path) as store:
        return int((await everything(store))[_TOTAL])


def main(path: str, name: str, seconds: str, *_: str) -> None:
    if _unlocked():
        Companion.try_lock = lambda self: True  # type: ignore[method-assign]
    print(json.dumps(asyncio.run(_write(Path(path), name, float(seconds)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
