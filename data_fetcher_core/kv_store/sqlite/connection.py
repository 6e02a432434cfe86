"""The one place that makes a SQLite connection."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

Connect = Callable[[str], sqlite3.Connection]

# Every statement the store uses, in every batch size, stays prepared.
_STATEMENTS = 256


def connect(uri: str) -> sqlite3.Connection:
    """A connection that never waits and begins no transaction of its own accord.

    Waiting is the writer's business: it has a budget, and must not be inside SQLite when the
    process forks. For the same reason another thread may close what the writer opened.
    """
    connection = sqlite3.connect(
        uri,
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS,
    )
    # A store has no texts; what a turned bit has made one is to be seen as such, whatever is in it.
    connection.text_factory = lambda raw: raw.decode(errors="surrogateescape")
    return connection


def as_uri(path: Path, parameters: str) -> str:
    """The file's URI, whatever bytes its name is made of."""
    return f"file:{quote(os.fsencode(path))}?{parameters}"


def configure(connection: sqlite3.Connection, synchronous: str) -> None:
    """What holds for every connection to a store's file."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    # On macOS an fsync alone leaves the data in the drive's cache.
    connection.execute("PRAGMA fullfsync = ON")
    # A damaged page is refused when it is read, not built upon.
    connection.execute("PRAGMA cell_size_check = ON")
