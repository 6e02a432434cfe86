"""What the advisory lock of the SQLite store costs: ``python -m benchmarks.sqlite_lock``.

Tiny functions from 100 concurrent callers, with the lock and with the lock made a no-op, in one
process and in two. Without the lock two processes rely on SQLite's own locks alone, which is what
a bundled newer SQLite would allow.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.kv_store.sqlite.companion import Companion

CALLERS = 100
SECONDS = 3.0
ROUNDS = 5
LOCKS = ("lock", "none")


def main() -> None:
    if len(sys.argv) > 1:
        path, name, lock = sys.argv[1:]
        print(asyncio.run(work(path, name.encode(), with_lock=lock == "lock")))
        return
    describe()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as place:
        print(f"lock and unlock: {lock_time(Path(place) / 'alone'):.1f} µs")
        for processes in (1, 2):
            compare(Path(place), processes)


def compare(place: Path, processes: int) -> None:
    rounds = [
        [together(place / f"{processes}-{number}-{lock}.db", processes, lock) for lock in LOCKS]
        for number in range(ROUNDS)
    ]
    locked, unlocked = (max(column) for column in zip(*rounds, strict=True))
    print(
        f"{processes} process(es): {locked:>6} functions/s with the lock, "
        f"{unlocked:>6} without (best of {ROUNDS})"
    )


def describe() -> None:
    try:
        bundled = version("apsw")
    except PackageNotFoundError:
        bundled = "not installed"
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    print(f"SQLite {sqlite3.sqlite_version}, apsw {bundled}, synchronous=FULL, {CALLERS} callers")


def lock_time(path: Path, times: int = 20_000) -> float:
    companion = Companion(path)
    started = time.perf_counter()
    for _ in range(times):
        companion.try_lock()
        companion.unlock()
    companion.close()
    return (time.perf_counter() - started) / times * 1e6


def together(path: Path, processes: int, lock: str) -> int:
    """Functions per second of all processes together."""
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, str(path), str(number), lock],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    return sum(int(worker.communicate()[0]) for worker in workers)


async def work(path: str, name: bytes, *, with_lock: bool) -> int:
    """Functions per second of this process."""
    async with SQLiteStore(path, busy_timeout=30.0) as store:
        await store.transact(step(name))
        if not with_lock:
            for verb, answer in (("try_lock", True), ("unlock", False)):
                setattr(Companion, verb, lambda _, answer=answer: answer)
        started = time.monotonic()
        counts = await asyncio.gather(
            *(call(store, step(b"%s-%d" % (name, i)), started + SECONDS) for i in range(CALLERS))
        )
        return round(sum(counts) / (time.monotonic() - started))


async def call(store: SQLiteStore, fn: Callable[[Transaction], None], until: float) -> int:
    done = 0
    while time.monotonic() < until:
        await store.transact(fn)
        done += 1
    return done


def step(key: bytes) -> Callable[[Transaction], None]:
    def read_and_write(tx: Transaction) -> None:
        tx.get_many([key])
        tx.put_many([(key, bytes(100))])

    return read_and_write


if __name__ == "__main__":
    main()
