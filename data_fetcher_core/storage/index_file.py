"""The index as one file that several processes append to, each line once and in order.

Whoever holds the file's lock reads how far it goes and writes what is missing. Nothing else
says how far it goes, so nothing can disagree with it. Blocking: for threads.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from data_fetcher_core.errors import StorageError
from data_fetcher_core.storage.disk import folder_of, sync, write_all
from data_fetcher_core.storage.index_lines import (
    Entries,
    after,
    is_foreign_line,
    is_torn,
    number_of,
    write_line,
)

_BLOCK = 64 * 1024
_ALL = 1 << 62
_PATIENCE = 30.0
_LONGEST_PAUSE = 0.02


def append(path: str, entries: Entries, patience: float = _PATIENCE) -> int:
    """Write the entries that the file does not have; its highest number, safe on the disk."""
    with locked(path, patience) as fd:
        end, last = _find_end(fd, path, _safe_before(entries))
        missing = list(after(entries, last))
        if missing and missing[0][0] != last + 1:
            raise StorageError(
                f"{path} lacks the lines {last + 1} to {missing[0][0] - 1}, which were written "
                "before: put back the file that had them, or begin a new run"
            )
        _write(fd, end, b"".join(write_line(*numbered) for numbered in missing))
        if end == 0:
            sync(folder_of(path))
        return missing[-1][0] if missing else last


def _safe_before(entries: Entries) -> int:
    """What need not be given again is safe: all before the first that is given."""
    return min((number for number, _ in entries), default=_ALL + 1) - 1


@contextmanager
def locked(path: str, patience: float = _PATIENCE) -> Iterator[int]:
    """The file, made if there is none, and nobody else's meanwhile."""
    fd = _open_and_lock(path, time.monotonic() + patience)
    try:
        yield fd
    finally:
        # Closing is not enough if a child forked meanwhile has it open too.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _open_and_lock(path: str, deadline: float) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _lock(fd, path, deadline)
            still_there = _is_at(fd, path)
        except BaseException:
            os.close(fd)
            raise
        if still_there:
            return fd
        os.close(fd)


def _lock(fd: int, path: str, deadline: float) -> None:
    pause = 0.001
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StorageError(
                    f"{path} is held by another process that does not let go: "
                    "look for one that hangs or was stopped"
                ) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            return


def _is_at(fd: int, path: str) -> bool:
    """Nobody moved the file away while we waited for its lock."""
    try:
        return os.path.samestat(os.fstat(fd), Path(path).stat())
    except FileNotFoundError:
        return False


def _find_end(fd: int, path: str, safe: int) -> tuple[int, int]:
    """Where the last good line ends, and its number.

    Lines up to ``safe`` are on the disk. Of those behind them, a power cut may have kept a block
    and not the one before it: what follows such a hole is written again.
    """
    pieces = _backwards(fd, os.fstat(fd).st_size)
    whole, rest = next(pieces)
    lines = _doubtful(pieces, safe)
    end, last = _before_hole(lines)
    is_foreign = any(is_foreign_line(line) for _, line in lines[:1])
    if is_foreign or not is_torn(rest) or (end < whole and last < safe):
        raise StorageError(
            f"{path} does not end with a line of this index: move it away, or choose another "
            "directory"
        )
    return end, last


def _backwards(fd: int, start: int) -> Iterator[tuple[int, bytes]]:
    """What stands between newlines, and where that begins: first what follows the last one."""
    rest = b""
    while start > 0:
        length = min(_BLOCK, start)
        start -= length
        content = os.pread(fd, length, start) + rest
        rest, *lines = content.split(b"\n")
        at = start + len(content)
        for line in reversed(lines):
            at -= len(line)
            yield at, line
            at -= 1
    yield 0, rest


def _doubtful(pieces: Iterator[tuple[int, bytes]], safe: int) -> list[tuple[int, bytes]]:
    """The last safe line and those behind it, in order; no further back than lines are ours."""
    lines = []
    for at, line in pieces:
        lines.append((at, line))
        number = number_of(line)
        if is_foreign_line(line) or (number is not None and number <= safe):
            break
    return lines[::-1]


def _before_hole(lines: Sequence[tuple[int, bytes]]) -> tuple[int, int]:
    end = last = 0
    for at, line in lines:
        number = number_of(line)
        if number is None or (last and number != last + 1):
            break
        end, last = at + len(line) + 1, number
    return end, last


def _write(fd: int, end: int, lines: bytes) -> None:
    """From ``end`` on, in place of what was torn; all of them on the disk, or none."""
    os.ftruncate(fd, end)
    try:
        if lines:
            write_all(fd, end, lines)
        # Even if there is nothing to write: who wrote last may have been killed before this.
        os.fsync(fd)
    except OSError:
        with suppress(OSError):
            os.ftruncate(fd, end)
        raise
