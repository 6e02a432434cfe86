"""Make durable what was there before, whatever became of the syncs that should have done it.

The system reports a failed sync once. It then takes the pages for written, and the next sync
passes over them. SQLite, opening the file again, takes in a log of which parts may never have
reached the disk, and commits that follow would be acknowledged on top of a gap. So the log is
written once more, each byte the same, before anything is built on it. The directory is synced for
the same reason: SQLite does that when it makes a log, but does not look whether it worked.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

_CHUNK = 1 << 20


def renew(log: Path, connection: sqlite3.Connection) -> None:
    """Write the log again and sync it with its name; an :class:`OSError` where that fails."""
    if log.stat().st_size > 0:
        # Nobody may add to the log meanwhile, be it a program that does not know our lock.
        connection.execute("BEGIN IMMEDIATE")
        try:
            _write_again(log)
        finally:
            connection.execute("ROLLBACK")
    sync(log.parent)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_again(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        at = 0
        while chunk := os.pread(descriptor, _CHUNK, at):
            at += os.pwrite(descriptor, chunk, at)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
