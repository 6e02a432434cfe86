"""The room that a SQLite store keeps for settling: given up, put back, and never promised twice."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from data_fetcher_core.errors import StoreFull, StoreUnavailable
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.kv_store.sqlite.reserve import Reserve
from data_fetcher_core.testing import ManualClock
from tests.demands import demanded_disk
from tests.evidence import Evidence
from tests.sqlite_support import Tap, child, everything, put, sqlite_error

RESERVE = 512 * 1024
FULL = sqlite_error(sqlite3.SQLITE_FULL, "SQLITE_FULL")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


# --- the file ------------------------------------------------------------------------------------


def test_of_a_reserve_that_was_lent_half_the_room_is_kept(
    path: Path,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _leave(monkeypatch, blocks=5)
    path.write_bytes(bytes(RESERVE))
    reserve, seen = Reserve(path, RESERVE, clock), list[bool]()
    reserve.lend(lambda: seen.append(path.exists()))
    assert (seen, reserve.refusing) == ([False], True)
    assert path.stat().st_size == 2 * 4096
    reserve.lend(lambda: None)
    assert [record.message.split(":")[0] for record in caplog.records] == ["the disk is full"]


def test_a_reserve_is_given_up_by_halves_and_comes_back_as_there_is_room(
    path: Path,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reserve = Reserve(path, RESERVE, clock)
    reserve.look()
    lengths = []
    while reserve.spend():
        lengths.append(path.stat().st_size)
    assert lengths == [RESERVE >> n for n in range(1, 8)]
    assert reserve.refusing
    assert len(caplog.records) == 1
    for room, kept in [(1, 1), (126, 63), (64, 63), (65, 128)]:
        _leave(monkeypatch, blocks=room)
        clock.advance(1.0)
        reserve.look()
        assert path.stat().st_size == kept * 4096
        assert reserve.refusing == (kept * 4096 < RESERVE)


def _leave(monkeypatch: pytest.MonkeyPatch, *, blocks: int) -> None:
    status = SimpleNamespace(f_bavail=blocks, f_frsize=4096)
    monkeypatch.setattr("os.statvfs", lambda _: status)


def test_less_room_than_was_told_is_found_by_trying(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a quota the file system tells what there is, not what one may have."""
    most = 300_000

    def sync(descriptor: int) -> None:
        if os.fstat(descriptor).st_size > most:
            raise _error(errno.EDQUOT)

    monkeypatch.setattr("os.fsync", sync)
    reserve = Reserve(path, RESERVE, clock)
    reserve.look()
    assert (reserve.refusing, path.stat().st_size) == (True, RESERVE // 2)


def test_where_a_file_cannot_be_made_shorter_it_is_removed(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = Reserve(path, RESERVE, clock)
    reserve.look()
    monkeypatch.setattr("os.truncate", _raising(errno.ENOSPC))
    assert reserve.spend()
    assert not path.exists()


def test_what_passes_does_not_end_the_reserve(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = Reserve(path, RESERVE, clock)
    with monkeypatch.context() as short:
        short.setattr("os.statvfs", _raising(errno.EMFILE))
        reserve.look()
        assert reserve.refusing
    clock.advance(1.0)
    reserve.look()
    assert (reserve.refusing, path.stat().st_size) == (False, RESERVE)


def test_what_is_covered(path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Reserve(path, RESERVE, clock)
    reserve.look()
    _leave(monkeypatch, blocks=4 * 200)
    assert reserve.covers(RESERVE)
    assert reserve.covers(200 * 4096)
    assert not reserve.covers(201 * 4096)
    assert reserve.spend()
    assert reserve.covers(RESERVE // 2)
    assert not reserve.covers(RESERVE // 2 + 1), "there may be room, but not for this"
    assert Reserve(path, 0, clock).covers(10**12)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _raising(number: int) -> object:
    def fail(*_: object) -> NoReturn:
        raise _error(number)

    return fail


# --- what is committed can be moved --------------------------------------------------------------

# Keeps 300 rows, then does what it is told: a new step, or settlements that add a result each.
_STEPS = """
async def told(work):
    try:
        await work
    except StoreFull:
        return False
    return True

def delete_and_put(i, size):
    def fn(tx):
        tx.delete_many([b"%d" % i])
        if size:
            tx.put_many([(b"result %d" % i, os.urandom(size))])
    return fn

async def main():
    store = SQLiteStore(sys.argv[1])
    for i in range(300):
        await store.transact(lambda tx: tx.put_many([(b"%d" % i, bytes(1000))]))
    await store.close()
    say("kept")
    new, size = map(int, wait().split())
    rows = [(b"new %d" % i, os.urandom(300)) for i in range(new)]
    if rows:
        await told(store.transact(lambda tx: tx.put_many(rows)))
    for i in range(100 if size else 0):
        if not await told(store.transact(delete_and_put(i, size), urgent=True)):
            break
    plain = [await told(store.transact(delete_and_put(i, 0), urgent=True)) for i in range(100, 300)]
    say(sum(plain))
    wait()
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("left", "new", "size"),
    [
        pytest.param(950, 2_000, 0, id="much that is new"),
        pytest.param(0, 0, 300_000, id="one large result"),
        pytest.param(0, 0, 100_000, id="few of them"),
        pytest.param(0, 0, 30_000, id="some"),
        pytest.param(0, 0, 5_000, id="many small ones"),
    ],
)
def test_whatever_came_before_settling_goes_on(
    tmp_path: Path, shows: Evidence, left: int, new: int, size: int
) -> None:
    """It had stood still: the log had what room there was, and could not be moved any more."""
    with demanded_disk(tmp_path / "disk", size="3m") as disk:
        there = disk.seen(disk.place)
        with child(_STEPS, disk.place / "runs.db", wrap=disk.wrap) as other:
            other.expect("kept")
            disk.fill(lambda: os.statvfs(there).f_bavail * 4096 > left * 1024)
            other.tell(f"{new} {size}")
            settled = int(other.hear())
            disk.make_room()
            other.tell()
            other.rest()
    shows("F43", "settlements on a full disk, whatever came before", settled, exactly=200)


async def test_what_adds_nothing_passes_whatever_the_log_will_add(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have become that long while there was room."""
    async with SQLiteStore(path) as store:
        await store.transact(lambda tx: tx.put_many([(b"%d" % n, bytes(999)) for n in range(99)]))
        monkeypatch.setattr(Reserve, "covers", lambda _, growth: growth < 0)
        await store.transact(lambda tx: tx.delete_many([b"1", b"2"]), urgent=True)
        await store.transact(put(b"3", b"shorter"), urgent=True)
        with pytest.raises(StoreFull):
            await store.transact(put(b"more", bytes(99_999)), urgent=True)
        assert len(await everything(store)) == 97


async def test_what_was_given_up_is_not_put_back_before_it_was_used(
    path: Path, clock: ManualClock
) -> None:
    """On a slow disk it was, again and again: the step was never answered."""
    tap = Tap()
    async with SQLiteStore(path, connect=tap.connect, clock=clock) as store:
        await store.transact(put(b"a"))
        tap.fail("COMMIT", FULL, times=40)
        tap.before["PRAGMA wal_checkpoint"] = lambda: clock.advance(1.1)
        with pytest.raises(StoreFull):
            await store.transact(put(b"b"), urgent=True)
        tap.before.clear()


async def test_a_quota_is_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite tells of it as of any write that failed."""
    monkeypatch.setattr(Reserve, "no_room", lambda _: True)
    failed, tap = sqlite_error(sqlite3.SQLITE_IOERR_WRITE, "SQLITE_IOERR_WRITE"), Tap()
    async with SQLiteStore(path, connect=tap.connect) as store:
        await store.transact(put(b"a"))
        tap.fail("COMMIT", failed, times=2)
        with pytest.raises(StoreFull):
            await store.transact(put(b"b"))
        tap.fail("COMMIT", failed, times=2)
        await store.transact(put(b"c"), urgent=True)
        assert path.with_name("runs.db-reserve").stat().st_size == RESERVE // 2
        assert list(await everything(store)) == [b"a", b"c"]


async def test_a_write_that_failed_for_another_reason_is_told_as_such(path: Path) -> None:
    failed, tap = sqlite_error(sqlite3.SQLITE_IOERR_WRITE, "SQLITE_IOERR_WRITE"), Tap()
    async with SQLiteStore(path, connect=tap.connect) as store:
        await store.transact(put(b"a"))
        tap.fail("COMMIT", failed)
        with pytest.raises(StoreUnavailable):
            await store.transact(put(b"b"))
