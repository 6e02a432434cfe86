"""A SQLite store without room: what is settled passes, what is new waits, and it recovers."""
# ruff: noqa: ASYNC240 - a test may touch files from its loop

from __future__ import annotations

import asyncio
import logging
import sqlite3
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from data_fetcher_core.errors import StoreFull
from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.testing import ManualClock
from tests.demands import demanded_disk
from tests.evidence import Evidence
from tests.small_disks import SmallDisk
from tests.sqlite_support import Tap, child, everything, put, sqlite_error

RESERVE = 512 * 1024
# A disk of 1 MB, filled up, settled from, emptied and filled again. On a system where nothing can
# be mounted the connection counts the bytes in the directory and says what SQLite would say.
SMALL_DISK = """
import subprocess
from data_fetcher_core.kv_store.sqlite import connect
from data_fetcher_core.testing import ManualClock
from tests.sqlite_support import Tap, integrity, sqlite_error

place, real = Path(sys.argv[1]), sys.argv[2] == "real"
clock, tap, size = ManualClock(), Tap(), 1024 * 1024
filler, reserve = place / "filler", place / "runs.db-reserve"

def used():
    return sum(file.stat().st_size for file in place.iterdir() if not file.name.endswith("-shm"))

def pretend():
    if used() > size:
        raise sqlite_error(sqlite3.SQLITE_FULL, "SQLITE_FULL")

if real:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], check=True)
else:
    tap.before["UPDATE commits"] = pretend  # comes before every commit that has something to write

def fill():
    with filler.open("ab", buffering=0) as file:
        try:
            while used() <= size:
                file.write(bytes(4096))
        except OSError:
            pass

def add(key): return lambda tx: tx.put_many([(key, bytes(3000))])
def drop(key): return lambda tx: tx.delete_many([key])
def keys(tx): return [key for key, _ in tx.range(b"", b"\\xff")]

async def refused(store):
    try:
        await store.transact(add(b"more"))
    except StoreFull as error:
        assert "only settlements are accepted" in str(error), error
        return True

async def main():
    filler.write_bytes(bytes(65536))
    store = SQLiteStore(place / "runs.db", clock=clock, connect=tap.connect)
    accepted = []
    try:
        while True:
            await store.transact(add(b"%06d" % len(accepted)))
            accepted.append(b"%06d" % len(accepted))
    except StoreFull:
        pass
    say("accepted", len(accepted))
    fill()
    assert await refused(store) and repr(store).endswith("full)"), repr(store)
    assert await store.transact(keys) == accepted
    results = await asyncio.gather(
        *(store.transact(drop(key), urgent=True) for key in accepted[:20]),
        *(store.transact(add(b"new"))  for _ in range(3)),
        return_exceptions=True,
    )
    assert [type(result) for result in results[20:]] == [StoreFull] * 3, results
    assert results[:20] == [None] * 20, results
    for key in accepted[20:-10]:
        await store.transact(drop(key), urgent=True)
    await store.transact(lambda tx: tx.put_many([(b"note", b"settled")]), urgent=True)
    assert await store.transact(keys) == [*accepted[-10:], b"note"]
    say("settled")
    await store.close()
    await store.transact(keys)
    assert reserve.exists()
    await store.close()
    fill()
    assert await store.transact(keys) == [*accepted[-10:], b"note"]
    await store.transact(drop(b"note"), urgent=True)
    assert reserve.stat().st_size < 512 * 1024 and await refused(store)
    say("reopened")
    filler.unlink()
    clock.advance(0.5)
    assert await refused(store)
    clock.advance(1.0)
    await store.transact(add(b"again"))
    assert reserve.stat().st_size == 512 * 1024
    assert await store.transact(keys) == [*accepted[-10:], b"again"]
    await store.close()
    assert integrity(place / "runs.db") == "ok"
    say("recovered")

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def narrow(path: Path, clock: ManualClock) -> AsyncIterator[SQLiteStore]:
    """A store that may grow to 40 pages."""
    tap = Tap("PRAGMA max_page_count = 40")
    async with SQLiteStore(path, clock=clock, connect=tap.connect) as store:
        yield store


async def _fill(store: SQLiteStore) -> list[bytes]:
    kept: list[bytes] = []
    while True:
        try:
            await store.transact(put(b"%04d" % len(kept), bytes(3000)))
        except StoreFull:
            return kept
        kept.append(b"%04d" % len(kept))


def _drop(key: bytes) -> Callable[[Transaction], None]:
    return lambda tx: tx.delete_many([key])


def _own_mounts() -> tuple[str, ...] | None:
    """How to run a command that may mount what nobody else sees, if that is allowed here."""
    for wrap in (("unshare", "-m"), ("unshare", "-r", "-m")):
        try:
            done = subprocess.run(
                [*wrap, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True
            )
        except FileNotFoundError:
            return None
        if done.returncode == 0:
            return wrap
    return None


@pytest.mark.parametrize("disk", ["real", "pretended"])
def test_a_full_disk(tmp_path: Path, disk: str) -> None:
    wrap = _own_mounts() if disk == "real" else None
    kind = "pretended" if wrap is None else "real"
    with child(SMALL_DISK, tmp_path, kind, wrap=wrap or ()) as other:
        word, number = other.hear().split()
        assert word == "accepted"
        assert int(number) > 60
        other.expect("settled")
        other.expect("reopened")
        other.expect("recovered")
        other.rest()


async def test_a_limit_of_pages_is_full_too_and_deletes_pass(
    narrow: SQLiteStore, path: Path, clock: ManualClock, shows: Evidence
) -> None:
    kept = await _fill(narrow)
    assert len(kept) > 20
    assert repr(narrow).endswith("full)")
    assert list(await everything(narrow)) == kept
    for key in kept[:10]:
        await narrow.transact(_drop(key), urgent=True)
    passed = len(kept) - len(await everything(narrow))
    shows("F43", "max_page_count: settlements that passed, of 10", passed, exactly=10)
    with pytest.raises(StoreFull, match="the disk is full; only settlements are accepted"):
        await narrow.transact(put(b"k"))
    clock.advance(1.5)
    await narrow.transact(put(b"k"))
    assert list(await everything(narrow)) == [*kept[10:], b"k"]


async def test_a_settlement_that_cannot_fit_is_refused_alone(narrow: SQLiteStore) -> None:
    with pytest.raises(StoreFull):
        await narrow.transact(put(b"k", bytes(1_000_000)), urgent=True)
    await narrow.transact(put(b"small"), urgent=True)
    assert list(await everything(narrow)) == [b"small"]


async def test_refusing_does_not_touch_the_disk_again_and_again(
    path: Path, clock: ManualClock
) -> None:
    tap = Tap("PRAGMA max_page_count = 40")
    async with SQLiteStore(path, clock=clock, connect=tap.connect) as store:
        await _fill(store)
        tap.statements.clear()
        for _ in range(10):
            with pytest.raises(StoreFull):
                await store.transact(put(b"k", bytes(3000)))
        assert tap.count("INSERT") == tap.count("PRAGMA wal_checkpoint") == 0


async def test_a_function_that_hides_the_refusal_has_written_nothing(narrow: SQLiteStore) -> None:
    kept = await _fill(narrow)

    def stubborn(tx: Transaction) -> list[bytes]:
        with pytest.raises(StoreFull):
            tx.put_many([(b"k", b"")])
        with pytest.raises(StoreFull):
            tx.delete_many([b"0000"])
        tx.put_many([])
        tx.delete_many(iter(()))
        return [key for key, _ in tx.range(b"", b"\xff")]

    assert await narrow.transact(stubborn) == kept
    assert list(await everything(narrow)) == kept


async def test_a_commit_without_room_is_tried_again_alone(path: Path) -> None:
    tap = Tap()
    async with SQLiteStore(path, connect=tap.connect) as store:
        await store.transact(put(b"first"))
        tap.fail("COMMIT", sqlite_error(sqlite3.SQLITE_FULL, "SQLITE_FULL"))
        await asyncio.gather(*(store.transact(put(b"%d" % i)) for i in range(5)))
        assert len(await everything(store)) == 6
    assert tap.count("PRAGMA wal_checkpoint") <= 1


async def test_what_the_log_will_add_always_fits_into_the_reserve(path: Path) -> None:
    """So that a disk which is full all of a sudden cannot keep the log from being used again."""
    reserve, row = 200_000, 20_000
    async with SQLiteStore(path, reserve_bytes=reserve) as store:
        for i in range(100):
            await store.transact(put(b"%d" % i, bytes(row)))
            with closing(sqlite3.connect(path)) as connection:
                (pages,) = connection.execute("PRAGMA page_count").fetchone()
            assert pages * 4096 - path.stat().st_size < reserve / 4 + row
        assert path.with_name("runs.db-wal").stat().st_size < 3_000_000


# --- the reserve ---------------------------------------------------------------------------------


async def test_the_reserve_takes_real_room_and_is_put_back(path: Path) -> None:
    reserve = path.with_name("runs.db-reserve")
    async with SQLiteStore(path, reserve_bytes=100_000) as store:
        await store.transact(put(b"a"))
        assert reserve.stat().st_blocks * 512 >= 100_000
        reserve.write_bytes(b"short")
        await store.transact(put(b"b"))
        assert reserve.stat().st_size == 100_000


async def test_a_reserve_that_was_only_lent_is_no_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log alone had filled the disk: once it is moved there is room again."""
    full, tap = sqlite_error(sqlite3.SQLITE_FULL, "SQLITE_FULL"), Tap()
    async with SQLiteStore(path, connect=tap.connect) as store:
        await store.transact(put(b"a"))
        tap.fail("COMMIT", full)
        tap.fail("PRAGMA wal_checkpoint", full)
        await store.transact(put(b"b"))
        await store.transact(put(b"c"))
    assert path.with_name("runs.db-reserve").stat().st_size == RESERVE
    assert not caplog.records


async def test_what_cannot_be_removed_makes_no_room(path: Path) -> None:
    full, tap = sqlite_error(sqlite3.SQLITE_FULL, "SQLITE_FULL"), Tap()
    path.with_name("runs.db-reserve").mkdir()
    async with SQLiteStore(path, connect=tap.connect) as store:
        await store.transact(put(b"a"))
        tap.fail("COMMIT", full, times=2)
        tap.fail("PRAGMA wal_checkpoint", full)
        with pytest.raises(StoreFull):
            await store.transact(put(b"b"), urgent=True)
        assert list(await everything(store)) == [b"a"]


# A store with something in it, closed when it is told to; before that it does what is asked of it.
_KEPT = """
async def main():
    store = SQLiteStore(sys.argv[1])
    for i in range(50):
        await store.transact(lambda tx: tx.put_many([(b"%d" % i, bytes(1000))]))
    say("kept")
    wait()
    for i in range(int(sys.argv[2])):
        await store.transact(lambda tx: tx.put_many([(b"%d done" % i, bytes(300))]), urgent=True)
    say("settled")
    wait()
    await store.close()

asyncio.run(main())
"""


def test_a_store_closed_on_a_full_disk_leaves_no_log(tmp_path: Path) -> None:
    """It holds far more room than it takes to move it, which the reserve has."""
    with demanded_disk(tmp_path / "disk") as disk:
        with child(_KEPT, disk.place / "runs.db", 0, wrap=disk.wrap) as other:
            other.expect("kept")
            disk.fill()
            other.tell()
            other.expect("settled")
            other.tell()
            other.rest()
        left = {file.name: file.stat().st_size for file in disk.seen(disk.place).iterdir()}
    assert left.keys() == {"filler", "runs.db", "runs.db-lock", "runs.db-reserve"}
    assert left["runs.db-reserve"] == RESERVE


def test_what_settling_adds_is_moved_with_room_that_is_kept_for_it(tmp_path: Path) -> None:
    """The log had taken all that was given up: nothing was left to make the database longer by."""
    with demanded_disk(tmp_path / "disk") as disk:
        reserve = disk.seen(disk.place / "runs.db-reserve")
        with child(_KEPT, disk.place / "runs.db", 400, wrap=disk.wrap) as other:
            other.expect("kept")
            with _kept_full(disk, lambda: reserve.exists() and reserve.stat().st_size >= RESERVE):
                other.tell()
                other.expect("settled")
            disk.make_room()
            other.tell()
            other.rest()


@contextmanager
def _kept_full(disk: SmallDisk, may_go_on: Callable[[], bool]) -> Iterator[None]:
    """Somebody else takes what room there is, but for what the store gives up for itself."""
    over = threading.Event()

    def fill() -> None:
        while not over.wait(0.005):
            disk.fill(may_go_on)

    disk.fill(may_go_on)
    with ThreadPoolExecutor(1) as pool:
        filling = pool.submit(fill)
        try:
            yield
        finally:
            over.set()
            filling.result()


async def test_no_reserve_where_none_is_wanted(path: Path) -> None:
    async with SQLiteStore(path, reserve_bytes=0) as store:
        await store.transact(put(b"a"))
    assert not path.with_name("runs.db-reserve").exists()


async def test_without_a_reserve_the_store_goes_on_and_says_so(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.with_name("runs.db-reserve").mkdir()
    with caplog.at_level(logging.WARNING, "data_fetcher_core.kv_store.sqlite"):
        async with SQLiteStore(path) as store:
            await store.transact(put(b"a"))
            await store.transact(put(b"b"))
            assert len(await everything(store)) == 2
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "no reserve for a full disk"
    ]
