"""What a file of ours looks like, how one comes into being, and how another is told apart."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from data_fetcher_core.errors import ConfigurationError, StoreCorrupt, StoreLost
from data_fetcher_core.kv_store.sqlite.connection import Connect, as_uri
from data_fetcher_core.kv_store.sqlite.renewal import sync

APPLICATION_ID = 0x44464331  # "DFC1"
VERSION = 1

# ``commits`` holds one row: how many transactions this file has seen. See the companion.
_SCHEMA = (
    "CREATE TABLE commits (n INTEGER NOT NULL)",
    "CREATE TABLE kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID",
)


def begins_anew(path: Path, acknowledged: int | None) -> bool:
    """Whether a new store begins here; :class:`StoreLost` where one has been before."""
    if path.exists() and path.stat().st_size > 0:
        return False
    lock = beside(path, "-lock")
    if acknowledged is not None:
        raise StoreLost(
            f"{path} is gone, or empty, and held a store: restore it, or remove {lock} to begin "
            "anew"
        )
    for left in (beside(path, "-wal"), beside(path, "-journal")):
        if left.exists() and left.stat().st_size > 0:
            raise StoreLost(
                f"{left} holds work of a database that is gone: restore {path}, or remove {left} "
                "to begin anew"
            )
    return True


def create(path: Path, connect: Connect) -> None:
    """Put a complete, empty database in place in one step, so that no half of one is ever seen."""
    fresh = beside(path, "-new")
    fresh.unlink(missing_ok=True)
    # What is in it, headers with credentials perhaps, is for its owner alone.
    fresh.touch(mode=0o600, exist_ok=False)
    try:
        with closing(connect(as_uri(fresh, "mode=rwc"))) as connection:
            _write_schema(connection)
        if path.exists():
            fresh.chmod(path.stat().st_mode & 0o777)
        sync(fresh)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    sync(path.parent)


def inspect(path: Path, connect: Connect) -> None:
    """Refuse what is no database of ours, without leaving a trace on it or beside it.

    ``immutable`` makes SQLite take no lock and look at no journal. A process that dies in the
    middle of a checkpoint leaves a first page that speaks of pages still to come from the journal;
    ``writable_schema`` lets that pass here. (Reading the header with ``open`` would be
    simpler, but closing that file drops the locks of every connection this process has to it.)
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    with closing(connect(as_uri(path, "mode=ro&immutable=1"))) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        _check_identity(connection, path)


def verify(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that bears our mark but not our tables."""
    _check_identity(connection, path)
    # As bytes: in a damaged file the text may be none.
    found = connection.execute(
        "SELECT CAST(sql AS BLOB) FROM sqlite_master"
        " WHERE type IN ('table', 'trigger') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        " ORDER BY name"
    ).fetchall()
    if found != [(sql.encode(),) for sql in _SCHEMA]:
        raise _strange(path)


def commits_seen(connection: sqlite3.Connection, path: Path) -> int:
    """How many transactions with a write in them the file has seen."""
    counts = connection.execute("SELECT n FROM commits").fetchall()
    if len(counts) != 1 or not isinstance(counts[0][0], int):
        raise _strange(path)
    return counts[0][0]


def _strange(path: Path) -> StoreCorrupt:
    return StoreCorrupt(
        f"{path} bears our mark, but does not hold the tables of a store: restore it from a copy, "
        "or use another path"
    )


def beside(path: Path, suffix: str) -> Path:
    """The file that goes with ``path`` and ends in ``suffix``."""
    return path.with_name(path.name + suffix)


def _write_schema(connection: sqlite3.Connection) -> None:
    # Nobody sees this file before it is whole, so it needs no journal.
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    for sql in _SCHEMA:
        connection.execute(sql)
    connection.execute("INSERT INTO commits VALUES (0)")


def _check_identity(connection: sqlite3.Connection, path: Path) -> None:
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if mark != APPLICATION_ID:
        raise ConfigurationError(
            f"{path} is a SQLite database of another program (application_id {mark:#x}): it is "
            "left as it is; use another path"
        )
    if version > VERSION:
        raise ConfigurationError(
            f"{path} was written by a newer data_fetcher_core (layout {version}; this one knows "
            f"{VERSION}): upgrade, or use another path"
        )
    if version < VERSION:
        raise StoreCorrupt(f"{path} has the impossible layout {version}: restore it from a copy")
