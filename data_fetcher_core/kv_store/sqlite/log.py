"""Whether a write-ahead log follows on from the database beside it.

SQLite takes in whatever ``-wal`` it finds. Where a process was killed, and then an older copy of
the database was put back without removing the log, the two make a third thing that never was. But
every commit of ours is numbered: the first one in the log must come right after the last one in the
file, or be in it already.

Only pages that SQLite would take in count, as told by their checksums: a power cut leaves others
behind, torn or without those that came before them.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from data_fetcher_core.kv_store.sqlite.connection import Connect, as_uri

_LEAST_PAGE = 512
_HEADER = struct.Struct(">I4xI4x8s8s")  # byte order, size of pages, salt, checksum
_FRAME = struct.Struct(">I4x8s8s")  # number of the page that follows, salt, checksum
_CHECKSUM = struct.Struct(">2I")
_32_BITS = 0xFFFFFFFF
# How many bytes hold an integer of each of SQLite's serial types; 8 and 9 stand for 0 and 1.
_WIDTHS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def follows_on(log: Path, path: Path, connect: Connect) -> bool:
    """Whether the log's commits continue those of the file; ``True`` where that cannot be told."""
    match _counter_in_file(path, connect) if log.exists() else []:
        case [(int(page), int(in_file))]:
            return _first_in_log(log, page) <= in_file + 1
    return True


def _counter_in_file(path: Path, connect: Connect) -> list[tuple[object, object]]:
    """The page that holds the number of commits, and the number, without the log."""
    with closing(connect(as_uri(path, "mode=ro&immutable=1"))) as connection:
        try:
            connection.execute("PRAGMA writable_schema = ON")
            return connection.execute(
                "SELECT rootpage, n FROM sqlite_master, commits WHERE name = 'commits'"
            ).fetchall()
        except sqlite3.Error:  # a checkpoint was cut short: SQLite completes it from the log
            return []


def _first_in_log(log: Path, page: int) -> int:
    """The number of the first commit there; 0 where there is none."""
    try:
        return next((_only_integer(found) for at, found in _frames(log) if at == page), 0)
    except FileNotFoundError:  # another program has just taken it in and removed it
        return 0


def _frames(log: Path) -> Iterator[tuple[int, bytes]]:
    """The pages in the log, with their numbers, up to the first that SQLite would not take in."""
    with log.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        mark, page_size, salt, expected = _HEADER.unpack(header)
        order = "<>"[mark & 1]
        sums = _checksum(order, header[:24], (0, 0))
        if page_size < _LEAST_PAGE or _CHECKSUM.pack(*sums) != expected:
            return
        while len(frame := file.read(_FRAME.size + page_size)) == _FRAME.size + page_size:
            page, own_salt, expected = _FRAME.unpack_from(frame)
            sums = _checksum(order, frame[:8] + frame[_FRAME.size :], sums)
            if own_salt != salt or _CHECKSUM.pack(*sums) != expected:
                return
            yield page, frame[_FRAME.size :]


def _checksum(order: str, content: bytes, before: tuple[int, int]) -> tuple[int, int]:
    """SQLite's own, which goes on from that of all before."""
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    one, two = before
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & _32_BITS
        two = (two + second + one) & _32_BITS
    return one, two


def _only_integer(page: bytes) -> int:
    """The one value of a table's leaf page with one row of one column."""
    cell = int.from_bytes(page[8:10], "big")
    # The sizes of row and header and the row's number take a byte each.
    kind = int.from_bytes(page[cell + 3 : cell + 4], "big")
    if kind in _WIDTHS:
        return int.from_bytes(page[cell + 4 : cell + 4 + _WIDTHS[kind]], "big")
    return kind - 8
