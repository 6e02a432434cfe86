"""What lies at a path and is no sound store of ours: refused, named, and left as it is."""
# ruff: noqa: ASYNC240 - a test may touch files from its loop

from __future__ import annotations

import os
import random
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path, PurePath

import pytest

from data_fetcher_core.errors import (
    ConfigurationError,
    DataFetcherError,
    StoreCorrupt,
    StoreUnavailable,
)
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.kv_store.sqlite.place import network_type
from tests.evidence import Evidence
from tests.sqlite_support import child, everything, integrity, put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


async def _filled(path: Path, rows: int = 50) -> dict[bytes, bytes]:
    async with SQLiteStore(path) as store:
        for i in range(rows):
            await store.transact(put(b"%04d" % i, bytes([i % 256]) * 800))
        return await everything(store)


def _files(place: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in place.iterdir() if file.is_file()}


async def _refused(path: Path, expected: type[DataFetcherError], match: str) -> None:
    """Both verbs are refused with the path in the message, and nothing has changed."""
    before = _files(path.parent)
    async with SQLiteStore(path) as store:
        for _ in range(2):
            with pytest.raises(expected, match=match) as caught:
                await store.transact(put(b"k"))
            assert str(path) in str(caught.value)
            with pytest.raises(expected):
                await everything(store)
    assert _files(path.parent) == before


def _flip(path: Path, offset: int, mask: int = 0x80) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= mask
    path.write_bytes(content)


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "expected", "match"),
    [
        (0, StoreCorrupt, "file is not a database"),
        (16, StoreCorrupt, "SQLITE_"),
        (19, StoreCorrupt, "SQLITE_"),
        (20, StoreCorrupt, "SQLITE_"),
        (63, ConfigurationError, "newer data_fetcher_core"),
        (68, ConfigurationError, "database of another program"),
        (71, ConfigurationError, "database of another program"),
        (100, StoreCorrupt, "SQLITE_CORRUPT"),
        (4096, StoreCorrupt, "SQLITE_CORRUPT"),
    ],
)
async def test_a_flipped_bit_where_it_shows(
    path: Path, offset: int, expected: type[DataFetcherError], match: str
) -> None:
    await _filled(path)
    _flip(path, offset)
    await _refused(path, expected, match)


@pytest.mark.parametrize("size", [1, 99, 100, 511, 4096, 8192, 30_000])
async def test_a_file_cut_short(path: Path, size: int) -> None:
    await _filled(path)
    path.write_bytes(path.read_bytes()[:size])
    # SQLite takes a single byte for an empty database; it is not one of ours all the same.
    await _refused(path, ConfigurationError if size == 1 else StoreCorrupt, "SQL")


async def test_a_page_overwritten_is_found_when_it_is_read(path: Path) -> None:
    stored = await _filled(path)
    content = bytearray(path.read_bytes())
    content[-8192:] = b"\xff" * 8192
    path.write_bytes(content)
    first = min(stored)
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreCorrupt, match="malformed"):
            await everything(store)
        assert await store.transact(lambda tx: tx.get_many([first])) == [stored[first]]


@pytest.mark.slow
async def test_a_flipped_bit_anywhere_is_typed_or_harmless(path: Path) -> None:
    """Never a foreign error, never a crash, never a hang."""
    stored = await _filled(path)
    sound, choose = path.read_bytes(), random.Random(1)
    noticed = 0
    places = [*range(100), *(choose.randrange(len(sound)) for _ in range(500))]
    for offset in places:
        for file in path.parent.iterdir():
            if file.name != "runs.db-reserve":
                file.unlink()
        path.write_bytes(sound)
        _flip(path, offset, 1 << choose.randrange(8))
        try:
            async with SQLiteStore(path, reserve_bytes=0) as store:
                found = await everything(store)
                await store.transact(put(b"new"))
            noticed += found != stored
        except DataFetcherError:
            noticed += 1
    assert noticed > 100


async def test_a_checkpoint_cut_short_is_no_damage(path: Path) -> None:
    """Killed when the first page was moved from the log and speaks of pages still to come."""
    code = """
    store = SQLiteStore(sys.argv[1], reserve_bytes=0)
    async def main():
        for i in range(100):
            await store.transact(lambda tx: tx.put_many([(b"%04d" % i, bytes(1000))]))
    asyncio.run(main())
    say("kept")
    wait()
    """
    with child(code, path) as other:
        other.expect("kept")
    log = path.with_name("runs.db-wal").read_bytes()
    frames = [log[at : at + 24 + 4096] for at in range(32, len(log), 24 + 4096)]
    firsts = [frame[24:] for frame in frames if struct.unpack_from(">I", frame) == (1,)]
    content = bytearray(path.read_bytes())
    content[:4096] = firsts[-1]
    path.write_bytes(content)
    assert struct.unpack_from(">I", content, 28)[0] * 4096 > len(content)
    async with SQLiteStore(path) as store:
        assert len(await everything(store)) == 100
    assert integrity(path) == "ok"


# --- other people's files ------------------------------------------------------------------------


def _foreign(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


async def test_a_text_file(path: Path) -> None:
    path.write_text("Dear diary,\n" * 100)
    await _refused(path, StoreCorrupt, "file is not a database")


async def test_a_database_of_another_program(path: Path) -> None:
    _foreign(path, "CREATE TABLE t (x)", "INSERT INTO t VALUES (1)")
    await _refused(path, ConfigurationError, "another program .application_id 0x0.")


async def test_a_foreign_database_with_a_log_in_use(path: Path) -> None:
    code = """
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID")
    say("made")
    wait()
    """
    with child(code, path) as other:
        other.expect("made")
    assert path.with_name("runs.db-wal").stat().st_size > 0
    await _refused(path, ConfigurationError, "another program|no such table")


@pytest.mark.parametrize(
    ("change", "expected", "match"),
    [
        ("PRAGMA user_version = 2", ConfigurationError, "layout 2; this one knows 1"),
        ("PRAGMA user_version = 0", StoreCorrupt, "impossible layout 0"),
        ("PRAGMA application_id = 7", ConfigurationError, "application_id 0x7"),
        ("DROP TABLE kv", StoreCorrupt, "does not hold the tables"),
        ("DELETE FROM commits", StoreCorrupt, "does not hold the tables"),
        ("UPDATE commits SET n = 'many'", StoreCorrupt, "does not hold the tables"),
        ("CREATE TABLE mine (x)", StoreCorrupt, "does not hold the tables"),
        (
            "CREATE TRIGGER t AFTER INSERT ON kv BEGIN DELETE FROM kv; END",
            StoreCorrupt,
            "does not hold the tables",
        ),
    ],
)
async def test_a_store_changed_by_other_hands(
    path: Path, change: str, expected: type[DataFetcherError], match: str
) -> None:
    await _filled(path, rows=3)
    _foreign(path, change)
    await _refused(path, expected, match)


async def test_harmless_maintenance_is_allowed(path: Path) -> None:
    stored = await _filled(path, rows=3)
    _foreign(path, "ANALYZE", "PRAGMA journal_mode = DELETE", "VACUUM")
    async with SQLiteStore(path) as store:
        assert await everything(store) == stored
        await store.transact(put(b"more"))


async def test_an_empty_file_becomes_a_store_and_keeps_its_mode(path: Path) -> None:
    path.touch()
    path.chmod(0o600)
    await _filled(path, rows=1)
    assert path.stat().st_mode & 0o777 == 0o600


# --- places --------------------------------------------------------------------------------------


def _directory(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "match"), [(_directory, "is a directory"), (_pipe, "is no plain file")]
)
async def test_what_is_no_file(path: Path, make: Callable[[Path], None], match: str) -> None:
    make(path)
    await _refused(path, ConfigurationError, match)


async def test_a_directory_that_is_not_there(path: Path) -> None:
    async with SQLiteStore(path / "deeper" / "runs.db") as store:
        with pytest.raises(StoreUnavailable, match="create it first"):
            await store.transact(put(b"k"))


@pytest.mark.parametrize("what", ["directory", "new", "file"])
def test_a_place_that_may_not_be_written(what: str, shows: Evidence) -> None:
    """By a user without rights: root may write everywhere."""
    code = """
    import shutil, stat, tempfile
    what, place = sys.argv[1], Path(tempfile.mkdtemp())
    path = place / "runs.db"
    async def use(path):
        async with SQLiteStore(path) as store:
            await store.put("k", 1)
    if what != "new":
        asyncio.run(use(path))
    for file in place.iterdir():
        file.chmod(0o444 if what == "file" and file == path else 0o666)
    place.chmod(0o777 if what == "file" else 0o555)
    before = {file.name: file.read_bytes() for file in place.iterdir()}
    pid = os.fork()
    if not pid:
        if os.getuid() == 0:
            os.setuid(65534)
        try:
            asyncio.run(use(path))
        except StoreUnavailable as error:
            say(str(path) in str(error))
        os._exit(0)
    os.waitpid(pid, 0)
    place.chmod(0o755)
    say(before == {file.name: file.read_bytes() for file in place.iterdir()})
    shutil.rmtree(place)
    """
    with child(code, what) as other:
        shows("F46", f"not writable ({what}): told", other.hear(), exactly="True")
        shows("F46", f"not writable ({what}): left as it was", other.hear(), exactly="True")
        other.rest()


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /home rw - nfs4 server:/home rw,vers=4.2
31 30 0:41 / /home/me/local\\040disk rw - xfs /dev/sdb rw
32 22 0:42 / /mnt/share rw master:2 - cifs //host/share rw
33 22 0:43 / /mnt/vm rw - 9p host0 rw
34 22 0:44 / /data rw - nfs server:/data rw
35 22 0:45 / /data rw - ext4 /dev/sdc rw
36 22 0:46 / /mnt/ssh rw - fuse.sshfs me@host: rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/runs.db", None),
        ("/home/me/runs.db", "nfs4"),
        ("/homework/runs.db", None),
        ("/home/me/local disk/runs.db", None),
        ("/mnt/share/a/b/runs.db", "cifs"),
        ("/mnt/vm/runs.db", None),
        ("/data/runs.db", None),
        ("/mnt/ssh/runs.db", "fuse.sshfs"),
    ],
)
def test_file_systems_that_hosts_share(path: str, kind: str | None) -> None:
    assert network_type(MOUNTS, PurePath(path)) == kind


async def test_a_network_file_system_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, shows: Evidence
) -> None:
    table = f"22 1 0:1 / {path.parent} rw - nfs4 server:/ rw\n"
    monkeypatch.setattr("data_fetcher_core.kv_store.sqlite.place._mount_table", lambda: table)
    await _refused(path, ConfigurationError, "network file system .nfs4.*redis://")
    made = len(list(path.parent.iterdir()))
    shows("F46", "a disk that two hosts share: refused, files made", made, exactly=0)
