"""A SQLite store on a disk that fails."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from data_fetcher_core.errors import (
    DataFetcherError,
    StoreCorrupt,
    StoreFull,
    StoreLost,
    StoreUnavailable,
    ValidationError,
)
from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.kv_store.sqlite.faults import as_store_error
from tests.demands import injected
from tests.evidence import Evidence
from tests.sqlite_support import (
    KEEP,
    Tap,
    as_one_group,
    child,
    everything,
    integrity,
    put,
    sqlite_error,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


async def test_a_commit_that_fails_is_nobodys_and_nobody_runs_again(path: Path) -> None:
    """The disk may have kept it, so that a second run could do it twice."""
    tap = Tap()
    runs = 0

    def step(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        tx.put_many([(b"b", b"")])
        tap.fail("COMMIT", sqlite_error(sqlite3.SQLITE_IOERR_FSYNC, "SQLITE_IOERR_FSYNC"))

    async with SQLiteStore(path, connect=tap.connect) as store:
        await store.transact(put(b"a"))
        results = await as_one_group(store, step, step, step)
        assert [type(result) for result in results] == [StoreUnavailable] * 3
        assert len({id(result) for result in results}) == 3
        assert "may or may not have been kept" in str(results[0])
        assert runs == 3
        await store.transact(put(b"c"))
        assert tap.count("PRAGMA journal_mode = WAL") == 2  # a new connection
        assert list(await everything(store)) == [b"a", b"c"]
    assert integrity(path) == "ok"


async def test_an_error_inside_a_group_costs_the_others_a_second_run_only(path: Path) -> None:
    tap = Tap()
    async with SQLiteStore(path, connect=tap.connect) as store:
        await store.transact(put(b"a"))
        tap.fail("DELETE", sqlite_error(sqlite3.SQLITE_IOERR_READ, "SQLITE_IOERR_READ"), times=9)
        results = await as_one_group(store, put(b"b"), lambda tx: tx.delete_many([b"a"]), put(b"c"))
        assert results[0] is results[2] is None
        assert isinstance(results[1], StoreUnavailable)
        assert list(await everything(store)) == [b"a", b"b", b"c"]


async def test_nothing_is_acknowledged_that_could_not_be_synced(
    path: Path, shows: Evidence
) -> None:
    with child(KEEP, path) as other:
        other.tell("a")
        other.expect("kept")
        with injected(other.pid, "fsync,fdatasync:error=EIO"):
            other.tell("b")
            shows("F44", "a sync that fails (EIO): told", other.hear(), exactly="StoreUnavailable")
        other.tell("c")
        other.expect("kept")
        other.tell()
        other.rest()
    async with SQLiteStore(path) as store:
        found = set(await everything(store))
    assert found <= {b"a", b"b", b"c"}
    shows("F44", "a sync that fails: acknowledged, and lost", len({b"a", b"c"} - found), exactly=0)
    shows("F44", "a sync that fails: integrity", integrity(path), exactly="ok")


async def test_writes_that_fail_are_typed_and_pass_again_when_the_disk_does(path: Path) -> None:
    """A limit on the size of files is a write error that every system can produce."""
    code = """
    import resource
    store = SQLiteStore(sys.argv[1], reserve_bytes=0)
    async def attempt(size):
        try:
            await store.transact(lambda tx: tx.put_many([(b"%d" % size, bytes(size))]))
            say("kept")
        except StoreError as error:
            say(type(error).__name__)
    asyncio.run(attempt(10))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    asyncio.run(attempt(1_000_000))
    asyncio.run(attempt(20))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    asyncio.run(attempt(1_000_001))
    asyncio.run(store.close())
    """
    with child(code, path) as other:
        other.expect("kept")
        assert other.hear() in {"StoreUnavailable", "StoreFull"}
        other.expect("kept")
        other.expect("kept")
        other.rest()
    async with SQLiteStore(path) as store:
        assert list(await everything(store)) == [b"10", b"1000001", b"20"]
    assert integrity(path) == "ok"


def test_no_descriptors_left_is_typed_and_passes(path: Path) -> None:
    code = """
    import resource
    store = SQLiteStore(sys.argv[1])
    async def main():
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = max(map(int, os.listdir("/proc/self/fd" if os.path.exists("/proc") else "/dev/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, hard))
        try:
            await store.put("k", 1)
        except StoreUnavailable as error:
            say("StoreUnavailable")
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await store.put("k", 2)
        say(await store.get("k"))
        await store.close()
    asyncio.run(main())
    """
    with child(code, path) as other:
        other.expect("StoreUnavailable")
        other.expect("2")
        other.rest()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (sqlite_error(sqlite3.SQLITE_FULL, "SQLITE_FULL"), StoreFull),
        (sqlite_error(sqlite3.SQLITE_IOERR_WRITE, "SQLITE_IOERR_WRITE"), StoreUnavailable),
        (sqlite_error(sqlite3.SQLITE_CORRUPT_VTAB, "SQLITE_CORRUPT_VTAB"), StoreCorrupt),
        (sqlite_error(sqlite3.SQLITE_NOTADB, "SQLITE_NOTADB"), StoreCorrupt),
        (sqlite_error(sqlite3.SQLITE_READONLY, "SQLITE_READONLY"), StoreUnavailable),
        (sqlite_error(sqlite3.SQLITE_READONLY_DBMOVED, "SQLITE_READONLY_DBMOVED"), StoreLost),
        (sqlite_error(sqlite3.SQLITE_CANTOPEN, "SQLITE_CANTOPEN"), StoreUnavailable),
        (sqlite_error(sqlite3.SQLITE_TOOBIG, "SQLITE_TOOBIG"), ValidationError),
        (sqlite_error(sqlite3.SQLITE_PROTOCOL, "SQLITE_PROTOCOL"), StoreUnavailable),
        (sqlite3.ProgrammingError("type 'object' is not supported"), ValidationError),
        (OSError(28, "No space left on device"), StoreFull),
        (PermissionError(13, "Permission denied", "/runs.db"), StoreUnavailable),
        (MemoryError(), StoreUnavailable),
    ],
)
def test_every_foreign_error_has_a_name_of_ours(
    error: BaseException, expected: type[DataFetcherError]
) -> None:
    translated = as_store_error(error, Path("/runs.db"))
    assert type(translated) is expected
    assert "/runs.db" in str(translated) or expected is ValidationError
    assert translated.__cause__ is error
