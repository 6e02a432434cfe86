"""The verbs of a transaction, in as few statements as they go.

A statement for a whole batch, not one per row: SQLite's module gives up the interpreter's lock for
every step, and a busy event loop may keep it for long before the thread gets it back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from data_fetcher_core.errors import StoreError
from data_fetcher_core.kv_store.sqlite.faults import SQL_ERRORS, as_store_error, damaged, full
from data_fetcher_core.kv_store.sqlite.outcomes import Failed, Kept

T = TypeVar("T")

_ROWS = 64
_UNLIMITED = -1
_MOST = 2**62

_COUNT = "SELECT count(*) FROM kv WHERE k >= ? AND k < ?"
_RANGE = "SELECT k, v FROM kv WHERE k >= ? AND k < ? ORDER BY k LIMIT ?"


class SQLiteTransaction:
    """What one function sees. It ends with the function, or with the first error of SQLite."""

    __slots__ = ("_connection", "_epoch", "_found", "_over", "_path", "_refusing", "error")

    def __init__(
        self, connection: sqlite3.Connection, path: Path, *, epoch: int, refusing: bool
    ) -> None:
        self._connection = connection
        self._epoch = epoch
        self._path = path
        self._refusing = refusing
        self._over = False
        self._found: set[bytes] = set()
        self.error: BaseException | None = None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found: dict[bytes, bytes] = {}
        for part in _parts(keys):
            found.update(self._pairs(_select(len(part)), part))
        self._found.update(found)
        return [found.get(key) for key in keys]

    def range(
        self, start: bytes, end: bytes, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        most = _UNLIMITED if limit is None else max(0, min(limit, _MOST))
        pairs = self._pairs(_RANGE, (start, end, most))
        keys = [start, *(key for key, _ in pairs)]
        # SQLite trusts its file, and who goes on behind the last key would go round and round.
        if sorted(keys) != keys:
            raise self._damaged("its rows are not in order")
        self._found.update(keys[1:])
        return pairs

    def count(self, start: bytes, end: bytes) -> int:
        return int(self._rows(_COUNT, (start, end))[0][0])

    def put_many(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        for part in self._writable(pairs):
            self._run(_upsert(len(part)), list(chain.from_iterable(part)))

    def delete_many(self, keys: Iterable[bytes]) -> None:
        # A row in a wrong place may be met by who walks along the rows and missed by who searches:
        # it, or its neighbour, would be found again and again.
        for part in self._writable(keys):
            found = self._found.intersection(part)
            _, deleted = self._run(_delete(len(part)), part)
            if deleted < len(found):
                raise self._damaged("its rows are not in order")
            self._found -= found

    def change_count(self) -> int:
        """A number that others' commits change; SQLite counts them anew for each connection."""
        return self._epoch << 32 | int(self._rows("PRAGMA data_version", ())[0][0])

    def run(self, fn: Callable[[SQLiteTransaction], Any]) -> Kept | Failed:
        """Run ``fn``, once; an error of SQLite counts even if ``fn`` has swallowed it."""
        outcome: Kept | Failed
        try:
            outcome = Kept(fn(self))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is its caller's
            outcome = Failed(error)
        self._over = True
        if self.error is not None and isinstance(outcome, Kept):
            outcome = Failed(as_store_error(self.error, self._path))
        return outcome

    def _writable(self, rows: Iterable[T]) -> list[Sequence[T]]:
        # All rows first: making them may itself read from this transaction.
        parts = _parts(list(rows))
        if parts and self._refusing:
            raise full(self._path)
        return parts

    def _pairs(self, sql: str, parameters: Sequence[Any]) -> list[tuple[bytes, bytes]]:
        pairs = self._rows(sql, parameters)
        if not all(type(key) is bytes is type(value) for key, value in pairs):
            raise self._damaged("it holds what no store has put there")
        return pairs

    def _damaged(self, how: str) -> BaseException:
        self.error = damaged(self._path, how)
        return self.error

    def _rows(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        return self._run(sql, parameters)[0]

    def _run(self, sql: str, parameters: Sequence[Any]) -> tuple[list[Any], int]:
        """The rows it has found, and how many it has changed."""
        if self._over or self.error is not None:
            raise StoreError(
                "this transaction is over: use tx only inside its function, and let its errors pass"
            )
        try:
            cursor = self._connection.execute(sql, parameters)
            return cursor.fetchall(), cursor.rowcount
        except SQL_ERRORS as error:
            self.error = error
            raise as_store_error(error, self._path) from error


def _parts(rows: Sequence[T]) -> list[Sequence[T]]:
    return [rows[at : at + _ROWS] for at in range(0, len(rows), _ROWS)]


def _marks(mark: str, count: int) -> str:
    return ", ".join([mark] * count)


@cache
def _select(count: int) -> str:
    return f"SELECT k, v FROM kv WHERE k IN ({_marks('?', count)})"  # noqa: S608 - only marks


@cache
def _upsert(count: int) -> str:
    return (
        f"INSERT INTO kv VALUES {_marks('(?, ?)', count)}"  # noqa: S608 - only marks
        " ON CONFLICT (k) DO UPDATE SET v = excluded.v"
    )


@cache
def _delete(count: int) -> str:
    return f"DELETE FROM kv WHERE k IN ({_marks('?', count)})"  # noqa: S608 - only marks
