"""A queue on a SQLite file, on a disk that is full, or that fails."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.errors import StoreFull, StoreUnavailable
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.testing import ManualClock
from tests.demands import NO_MOUNTS, leave_out
from tests.evidence import Evidence
from tests.fault_support import VERBS, Act, Ledger, bounded, open_run
from tests.harness import accounted, impatient, places, settled
from tests.sqlite_support import Tap, child, integrity, sqlite_error
from tests.waiting import failure_of

__all__ = ["bounded"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


# --- a full disk ---------------------------------------------------------------------------------


class SmallDisk:
    """Says what SQLite would say once the directory holds more than ``size`` bytes."""

    def __init__(self, directory: Path) -> None:
        self.size = 10**12
        self._directory = directory
        self._tap = Tap()
        self.connect = self._tap.connect
        # What comes before every commit that has something to write.
        self._tap.before["UPDATE commits"] = self._refuse_if_full

    def used(self) -> int:
        files = [file for file in self._directory.iterdir() if not file.name.endswith("-shm")]
        return sum(file.stat().st_size for file in files)

    def _refuse_if_full(self) -> None:
        if self.used() > self.size:
            raise sqlite_error(sqlite3.SQLITE_FULL, "SQLITE_FULL")


async def _fill(queue: KVStoreQueue, ledger: Ledger) -> int:
    for step in itertools.count():
        try:
            await ledger.enqueue(queue, [f"{step}-{n}-{'x' * 100}" for n in range(20)])
        except StoreFull:
            return step
    raise AssertionError("unreachable")


async def work_on_a_full_disk(
    store: SQLiteStore,
    clock: ManualClock,
    fill_up: Callable[[], None],
    make_room: Callable[[], Any],
) -> tuple[Ledger, int]:
    """Fill a queue until it is refused, settle all kinds of leases, make room, and go on.

    What must be there, and how many settlements passed while there was no room.
    """
    ledger = Ledger()
    async with open_run(store, clock=clock) as queue:
        await ledger.enqueue(queue, [f"first {n}" for n in range(40)])
        fill_up()
        await _fill(queue, ledger)
        fill_up()
        with pytest.raises(StoreFull) as refused:
            await ledger.enqueue(queue, [f"more {n}" for n in range(2000)])
        assert refused.value.accepted == 0
        done, page, later, bad, back, *rest = await queue.lease(30)
        await ledger.complete(done)
        with pytest.raises(StoreFull):
            await ledger.complete(page, ["link"])
        await later.release(delay=1.0, error="later")
        await bad.bury("no good")
        await back.give_back()
        await queue.sweep()
        await asyncio.gather(*(ledger.complete(lease) for lease in rest))
        assert (await accounted(queue)).leased == 1
        make_room()
        clock.advance(5.0)
        await ledger.complete(page, ["link"])
        await ledger.enqueue(queue, ["afterwards"])
        await settled(queue)
        assert (await accounted(queue)).leased == 0
    return ledger, 4 + len(rest)


async def check_after_reopening(path: Path, ledger: Ledger) -> None:
    async with SQLiteStore(path) as store, open_run(store) as queue:
        await ledger.balance(queue)
    assert integrity(path) == "ok"


async def test_a_full_disk_settles_and_takes_in_nothing_new(
    tmp_path: Path, shows: Evidence
) -> None:
    disk, clock = SmallDisk(tmp_path), ManualClock()
    path = tmp_path / "run.db"

    def fill_up() -> None:
        disk.size = disk.used() + (200_000 if disk.size > 10**9 else 0)

    async with SQLiteStore(path, clock=clock, connect=disk.connect) as store:
        ledger, settled_then = await work_on_a_full_disk(
            store, clock, fill_up, lambda: setattr(disk, "size", 10**12)
        )
    await check_after_reopening(path, ledger)
    _show_full(shows, "pretended", settled_then, len(ledger.sent))


def _show_full(shows: Evidence, disk: str, settled_then: int, accounted_for: int) -> None:
    """Of 30 leases one has a child, for which there is no room."""
    shows("F43", f"{disk} disk: settled while it was full, of 29", settled_then, exactly=29)
    shows("F43", f"{disk} disk: found when opened again, each once", accounted_for, at_least=42)


# A real disk of 1 MB; a module of its own would need the same imports.
REAL = """
import subprocess
from tests.test_faults_sqlite import check_after_reopening, work_on_a_full_disk
from data_fetcher_core.testing import ManualClock

place = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)], check=True)
filler = place / "filler"

def fill_up():
    with filler.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            pass

async def main():
    clock = ManualClock()
    async with SQLiteStore(place / "run.db", clock=clock) as store:
        ledger, settled_then = await work_on_a_full_disk(store, clock, fill_up, filler.unlink)
    await check_after_reopening(place / "run.db", ledger)
    say(settled_then)
    say(len(ledger.sent))

asyncio.run(main())
"""


def _own_mounts() -> tuple[str, ...]:
    """How a process gets mounts of its own."""
    for wrap in (("unshare", "-m"), ("unshare", "-r", "-m")):
        with suppress(OSError, subprocess.TimeoutExpired):
            mount = [*wrap, "mount", "-t", "tmpfs", "none", "/mnt"]
            if subprocess.run(mount, capture_output=True, timeout=10).returncode == 0:
                return wrap
    return leave_out(NO_MOUNTS)


def test_a_real_disk_that_is_full(tmp_path: Path, shows: Evidence) -> None:
    with child(REAL, tmp_path, wrap=_own_mounts()) as other:
        settled_then, accounted_for = int(other.hear()), int(other.hear())
        other.rest()
    _show_full(shows, "real", settled_then, accounted_for)


# --- a disk that fails ---------------------------------------------------------------------------

IO_ERROR = sqlite_error(sqlite3.SQLITE_IOERR, "SQLITE_IOERR_FSYNC")


class FailingDisk:
    """Commits that fail: undone (``before``), or done and not known to be (``after``)."""

    def __init__(self) -> None:
        self.commits = 0
        self.fail_at: set[int] = set()
        self.when = "before"

    def connect(self, uri: str) -> sqlite3.Connection:
        disk = self

        class Failing(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                if sql != "COMMIT":
                    return super().execute(sql, parameters)
                disk.commits += 1
                fails = disk.commits in disk.fail_at
                if not fails or disk.when == "after":
                    cursor = super().execute(sql, parameters)
                if fails:
                    raise IO_ERROR
                return cursor

        plain: dict[str, Any] = {"uri": True, "timeout": 0, "check_same_thread": False}
        return sqlite3.connect(uri, isolation_level=None, factory=Failing, **plain)


async def _perform(path: Path, verb: str, when: str = "", nth: int = 0) -> tuple[Any, int]:
    """What can be seen after the verb, and how many commits it took."""
    disk = FailingDisk()
    run_id = f"{verb} {when} {nth}"
    async with (
        SQLiteStore(path, synchronous="NORMAL", connect=disk.connect) as store,
        Act(store, run_id) as act,
    ):
        before = disk.commits
        disk.when, disk.fail_at = when, {before + nth} if when else set()
        act.answer = await VERBS[verb](act)
        await settled(act.queue)
        commits = disk.commits - before
        disk.fail_at.clear()
        return await act.last_view(), commits


COMMON = ("enqueue", "lease", "complete with all", "release", "reap", "cancel", "clear", "close")
OTHERS = [pytest.param(verb, marks=pytest.mark.slow) for verb in VERBS if verb not in COMMON]


@pytest.mark.parametrize("verb", [*COMMON, *OTHERS])
async def test_a_commit_that_fails_is_not_noticed(path: Path, verb: str, shows: Evidence) -> None:
    expected, commits = await _perform(path, verb)
    for when, nth in itertools.product(("before", "after"), range(1, commits + 1)):
        found, _ = await _perform(path, verb, when, nth)
        assert found == expected, (when, nth)
    shows("F44", f"a failed commit in {verb!r}: integrity", integrity(path), exactly="ok")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_disk_that_goes_on_failing_acknowledges_nothing(
    path: Path, when: str, shows: Evidence
) -> None:
    acknowledged = 0
    disk, ledger = FailingDisk(), Ledger()
    store = SQLiteStore(path, connect=disk.connect)
    async with store, open_run(store) as queue:
        await ledger.enqueue(queue, ["one", "two", "three"])
        held = await queue.lease(2)
        await impatient(queue, 0.3)
        disk.when, disk.fail_at = when, set(range(10_000))
        for call in (
            ledger.enqueue(queue, ["four"]),
            ledger.complete(held[0], ["child"]),
            queue.lease(),
            queue.sweep(),
        ):
            acknowledged += not isinstance(await failure_of(call), StoreUnavailable)
        disk.fail_at.clear()
        await impatient(queue, 10.0)
        await ledger.complete(held[1])
        assert "dead" not in await places(queue)
    async with SQLiteStore(path) as store, open_run(store) as queue:
        await ledger.balance(queue)
    kind = f"commits that fail {when} they are done"
    shows("F44", f"{kind}: acknowledged meanwhile", acknowledged, exactly=0)
    shows("F44", f"{kind}: integrity", integrity(path), exactly="ok")


# A file may grow no further: a write is short, the next one fails.
SHORT_WRITES = """
import resource
from tests.fault_support import Ledger, open_run
from tests.harness import impatient
from tests.sqlite_support import integrity

path, ledger = Path(sys.argv[1]), Ledger()

async def main():
    async with SQLiteStore(path) as store, open_run(store) as queue:
        await ledger.enqueue(queue, [f"{n}" for n in range(100)])
        held = await queue.lease(10)
        await impatient(queue, 0.5)
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        log = path.with_name(path.name + "-wal")
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 6000, unlimited[1]))
        told, n = 0, 0
        while told < 2:
            n += 1
            try:
                await ledger.enqueue(queue, [f"{n} of {m} {'x' * 200}" for m in range(20)])
            except StoreError:
                told += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        await impatient(queue, 10.0)
        for lease in held:
            await ledger.complete(lease)
        say("told")
    async with SQLiteStore(path) as store, open_run(store) as queue:
        await ledger.balance(queue)
    say(integrity(path))
    say(len(ledger.sent))

asyncio.run(main())
"""


def test_a_write_that_is_cut_short_is_told_and_undone(path: Path, shows: Evidence) -> None:
    with child(SHORT_WRITES, path) as other:
        other.expect("told")
        shows("F44", "short writes: integrity", other.hear(), exactly="ok")
        found = int(other.hear())
        shows("F44", "short writes: acknowledged, and found again once", found, at_least=100)
        other.rest()
