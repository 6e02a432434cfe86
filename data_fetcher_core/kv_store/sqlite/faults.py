"""What SQLite and the operating system say, in the words of this package."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from data_fetcher_core.errors import (
    DataFetcherError,
    StoreCorrupt,
    StoreFull,
    StoreLost,
    StoreUnavailable,
    ValidationError,
)

# What the standard library and SQLite throw when a statement fails.
# (It cannot say what is wrong with a table whose name is no text.)
SQL_ERRORS = (sqlite3.Error, MemoryError, OverflowError, UnicodeDecodeError)
_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})

_MEANINGS: dict[int, tuple[type[DataFetcherError], str]] = {
    sqlite3.SQLITE_CORRUPT: (
        StoreCorrupt,
        "look at the disk; if that reads well, restore it from a copy; it was left as it is",
    ),
    sqlite3.SQLITE_NOTADB: (StoreCorrupt, "it was left as it is; use another path"),
    sqlite3.SQLITE_ERROR: (StoreCorrupt, "something else has changed it; restore it from a copy"),
    sqlite3.SQLITE_READONLY: (StoreUnavailable, "make the file and its directory writable"),
    sqlite3.SQLITE_PERM: (StoreUnavailable, "make the file and its directory writable"),
    sqlite3.SQLITE_CANTOPEN: (
        StoreUnavailable,
        "see that the directory exists, is writable, and that descriptors are left (ulimit -n)",
    ),
    sqlite3.SQLITE_IOERR: (
        StoreUnavailable,
        "the last step may or may not have been kept; look at the disk and its kernel messages",
    ),
    sqlite3.SQLITE_BUSY: (StoreUnavailable, "another program is using it; try again"),
    sqlite3.SQLITE_TOOBIG: (ValidationError, "a value is too large for SQLite; split it"),
}


class Immovable(OSError):
    """There may be no room to move the log if it grows by this, too."""


def is_busy(error: BaseException) -> bool:
    """Whether somebody else's lock is in the way."""
    return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def is_full(error: BaseException) -> bool:
    """Whether there was no room."""
    if isinstance(error, OSError):
        return error.errno in _FULL_ERRNOS
    return _code(error) == sqlite3.SQLITE_FULL


def may_hide_full(error: BaseException) -> bool:
    """Whether a lack of room can look like this: SQLite has other names for it while opening."""
    return is_full(error) or _code(error) in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}


def is_failed_write(error: BaseException) -> bool:
    """Whether SQLite could not write; where that is for a quota, it does not say so."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_WRITE


def ends_transaction(error: BaseException) -> bool:
    """Whether what follows in the same transaction cannot be trusted."""
    return isinstance(error, MemoryError) or _code(error) in {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
    }


def full(path: Path) -> StoreFull:
    return StoreFull(f"{path}: the disk is full; only settlements are accepted until there is room")


def damaged(path: Path, how: str) -> StoreCorrupt:
    """What SQLite itself does not notice."""
    return StoreCorrupt(f"{path}: {how}: restore it from a copy")


def as_store_error(error: BaseException, path: Path) -> DataFetcherError:
    """A new error of ours for each caller, so that none shares another's traceback."""
    if isinstance(error, DataFetcherError):
        return type(error)(*error.args)
    translated = _translated(error, path)
    translated.__cause__ = error
    return translated


def _translated(error: BaseException, path: Path) -> DataFetcherError:
    if is_full(error):
        return full(path)
    if isinstance(error, OSError):
        reason = error.strerror or repr(error)
        where = error.filename or path
        return StoreUnavailable(f"{where}: {reason}; see that it exists and may be written")
    if isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError | OverflowError):
        return ValidationError(f"keys and values of a store are bytes: {error}")
    if isinstance(error, UnicodeDecodeError):
        return damaged(path, "its tables have other names")
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if name == "SQLITE_READONLY_DBMOVED":
        return StoreLost(f"{path} was moved or deleted while it was open: put it back")
    kind, remedy = _MEANINGS.get(_code(error), (StoreUnavailable, "try again"))
    return kind(f"{path}: {str(error) or 'out of memory'} ({name}): {remedy}")


def _code(error: BaseException) -> int:
    """SQLite's primary code; an error without one is not SQLite's own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
