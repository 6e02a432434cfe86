"""Files of a SQLite store that vanish, come back older, or belong to something else."""
# ruff: noqa: ASYNC240 - a test may touch files from its loop

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from data_fetcher_core.errors import ConfigurationError, StoreLost
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.kv_store.sqlite.companion import Companion
from tests.sqlite_support import child, everything, integrity, put

# Keeps what it is told, line by line.
KEEP = """
store = SQLiteStore(sys.argv[1])
while line := wait().strip().encode():
    asyncio.run(store.transact(lambda tx: tx.put_many([(line, bytes(300))])))
    say("kept")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


async def _filled(path: Path, *keys: bytes) -> None:
    async with SQLiteStore(path) as store:
        for key in keys:
            await store.transact(put(key))


async def test_a_file_deleted_while_open(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await store.transact(put(b"a"))
        path.unlink()
        for _ in range(3):
            with pytest.raises(StoreLost, match=r"runs\.db"):
                await store.transact(put(b"b"))
        with pytest.raises(StoreLost):
            await everything(store)
        assert not path.exists()


async def test_a_file_replaced_while_open(path: Path) -> None:
    await _filled(path.with_name("other.db"), b"other")
    async with SQLiteStore(path) as store:
        for key in (b"a", b"b", b"c"):
            await store.transact(put(key))
        other = path.with_name("other.db").read_bytes()
        path.with_name("other.db").rename(path)
        with pytest.raises(StoreLost, match="replaced while the store was open"):
            await store.transact(put(b"d"))
        with pytest.raises(StoreLost, match="has seen 1 commits, but 3 were acknowledged"):
            await store.transact(put(b"d"))
    assert path.read_bytes() == other


async def test_a_file_moved_away_while_open_takes_its_work_along(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await store.transact(put(b"a"))
        path.rename(path.with_name("moved.db"))
        with pytest.raises(StoreLost):
            await store.transact(put(b"b"))
        path.with_name("moved.db").rename(path)
        await store.transact(put(b"c"))
        assert list(await everything(store)) == [b"a", b"c"]


async def test_a_log_removed_while_open_is_noticed_and_saved(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await store.transact(put(b"a"))
        path.with_name("runs.db-wal").unlink()
        with pytest.raises(StoreLost, match="-wal was removed"):
            await store.transact(put(b"b"))
        await store.transact(put(b"c"))
        assert list(await everything(store)) == [b"a", b"c"]


async def test_a_file_gone_between_runs(path: Path) -> None:
    await _filled(path, b"a")
    copy = path.read_bytes()
    for lose in (path.unlink, lambda: path.write_bytes(b"")):
        lose()
        async with SQLiteStore(path) as store:
            with pytest.raises(StoreLost, match=r"restore it, or remove .*-lock to begin anew"):
                await store.transact(put(b"b"))
        assert not path.exists() or path.stat().st_size == 0
        path.write_bytes(copy)
    path.unlink()
    path.with_name("runs.db-lock").unlink()
    await _filled(path, b"anew")


def _killed_with_a_log(path: Path) -> None:
    """A store whose process died: what it kept is in the log only."""
    with child(KEEP, path) as other:
        for key in ("a", "b", "c"):
            other.tell(key)
            other.expect("kept")
    assert path.with_name("runs.db-wal").stat().st_size > 0


async def test_killed_and_opened_again(path: Path) -> None:
    _killed_with_a_log(path)
    async with SQLiteStore(path) as store:
        assert list(await everything(store)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("damage", ["removed", "emptied", "flipped", "cut"])
async def test_a_log_lost_between_runs(path: Path, damage: str) -> None:
    _killed_with_a_log(path)
    log = path.with_name("runs.db-wal")
    content = bytearray(log.read_bytes())
    if damage == "removed":
        log.unlink()
    else:
        content[len(content) // 2] ^= 1
        kept = {"emptied": 0, "flipped": len(content), "cut": len(content) - 1}[damage]
        log.write_bytes(content[:kept])
    before = path.read_bytes()
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreLost, match=r"3 were acknowledged.*remove .*runs\.db-lock"):
            await store.transact(put(b"d"))
    if damage == "removed":
        assert path.read_bytes() == before
    path.with_name("runs.db-lock").unlink()
    await _filled(path, b"d")


async def test_a_log_that_another_program_took_in_is_not_missed(path: Path) -> None:
    _killed_with_a_log(path)
    assert integrity(path) == "ok"  # opens, takes the log in, removes it
    assert not path.with_name("runs.db-wal").exists()
    async with SQLiteStore(path) as store:
        assert list(await everything(store)) == [b"a", b"b", b"c"]


async def test_an_older_copy_put_back(path: Path) -> None:
    await _filled(path, b"a")
    copy = path.read_bytes()
    await _filled(path, b"b")
    path.write_bytes(copy)
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreLost, match="has seen 1 commits, but 2 were acknowledged"):
            await everything(store)
    assert path.read_bytes() == copy


async def test_an_older_copy_put_back_beside_the_log_of_a_newer_one(path: Path) -> None:
    await _filled(path, b"a")
    copy = path.read_bytes()
    await _filled(path, *(b"%d" % i for i in range(300)))
    _killed_with_a_log(path)
    path.write_bytes(copy)
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreLost, match=r"-wal goes with a newer runs\.db"):
            await everything(store)
    assert path.read_bytes() == copy
    path.with_name("runs.db-wal").unlink()
    path.with_name("runs.db-lock").unlink()
    async with SQLiteStore(path) as store:
        assert list(await everything(store)) == [b"a"]


async def test_a_log_that_a_power_cut_left_with_a_gap_is_no_other_log(path: Path) -> None:
    """Without FULL its pages reach the disk in any order: what follows a gap never counted."""
    async with SQLiteStore(path, synchronous="NORMAL") as store:
        for key in (b"a", b"b", b"c"):
            await store.transact(put(key))
        files = {file: file.read_bytes() for file in path.parent.iterdir()}
    log = path.with_name("runs.db-wal")
    content = bytearray(files[log])
    content[32 : 32 + 2 * (24 + 4096)] = bytes(2 * (24 + 4096))  # the first commit's two pages
    for file, before in {**files, log: bytes(content)}.items():
        file.write_bytes(before)
    path.with_name("runs.db-shm").unlink()
    async with SQLiteStore(path, synchronous="NORMAL") as store:
        assert await everything(store) == {}
        await store.transact(put(b"d"))


async def test_a_log_without_its_database_is_not_mixed_into_a_new_one(path: Path) -> None:
    _killed_with_a_log(path)
    path.unlink()
    path.with_name("runs.db-lock").unlink()
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreLost, match="-wal holds work of a database that is gone"):
            await store.transact(put(b"d"))


# --- the companion -------------------------------------------------------------------------------


async def test_a_companion_removed_while_open_is_made_again(path: Path) -> None:
    lock = path.with_name("runs.db-lock")
    async with SQLiteStore(path, busy_timeout=0.2) as store:
        await store.transact(put(b"a"))
        lock.unlink()
        await store.transact(put(b"b"))
        assert b"2 commits acknowledged" in lock.read_bytes()


async def test_a_foreign_companion_is_left_alone(path: Path) -> None:
    lock = path.with_name("runs.db-lock")
    lock.write_bytes(b"my shopping list: bread, butter, a very long list of other things")
    before = lock.read_bytes()
    async with SQLiteStore(path) as store:
        with pytest.raises(ConfigurationError, match=r"runs\.db-lock is not the companion"):
            await store.transact(put(b"a"))
    assert lock.read_bytes() == before
    assert not path.exists()


def _torn(before: bytes, after: bytes) -> Iterator[bytes]:
    """What a write that stopped at any byte leaves, from the beginning on or from the end."""
    before = before.ljust(len(after), b"\0")
    for at in range(len(after) + 1):
        yield after[:at] + before[at:]
        yield before[:at] + after[at:]


async def test_a_companion_torn_when_it_was_begun_has_promised_nothing(path: Path) -> None:
    async with SQLiteStore(path) as store:
        assert await everything(store) == {}
    lock = path.with_name("runs.db-lock")
    line = lock.read_bytes()
    for left in {*_torn(b"", line), *(line[:at] for at in range(len(line)))}:
        lock.write_bytes(left)
        async with SQLiteStore(path, reserve_bytes=0) as store:
            assert await everything(store) == {}


@pytest.mark.parametrize(("known", "commits"), [(0, 1), (9, 10), (199, 200), (19, 57), (808, 7077)])
def test_a_companion_torn_at_any_byte_never_promises_more_than_was_kept(
    path: Path, known: int, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = path.with_name("runs.db-lock")
    written: list[bytes] = []
    monkeypatch.setattr(os, "pwrite", lambda fd, content, at: written.append(content))
    with closing(Companion(lock)) as companion:
        before = _told(known)
        lock.write_bytes(before)
        companion.acknowledged()
        companion.acknowledge(commits)
        for after in written:
            for left in _torn(before, after):
                lock.write_bytes(left)
                promised = companion.acknowledged()
                assert promised is not None
                assert promised <= commits, left
            before = after
    assert before == _told(commits)


def _told(commits: int) -> bytes:
    return b"data_fetcher_core: %020d commits acknowledged\n" % commits


async def test_a_file_without_a_companion_is_taken_as_it_is(path: Path) -> None:
    await _filled(path, b"a")
    path.with_name("runs.db-lock").unlink()
    await _filled(path, b"b")
    async with SQLiteStore(path) as store:
        assert list(await everything(store)) == [b"a", b"b"]
