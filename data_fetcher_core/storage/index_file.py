"""The index as one file that several processes append to, each line once and in order.

Whoever holds the file's lock reads how far it goes and writes what is missing. Nothing else
says how far it goes, so nothing can disagree with it. Blocking: for threads.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from data_fetcher_core.errors import StorageError
from data_fetcher_core.storage.disk import folder_of, sync, write_all
from data_fetcher_core.storage.index_lines import Entries, after, is_torn, number_of, write_line

_BLOCK = 64 * 1024
_PATIENCE = 30.0
_LONGEST_PAUSE = 0.02


def append(path: str, entries: Entries, patience: float = _PATIENCE) -> int:
    """Write the entries that the file does not have; its highest number, safe on the disk."""
    with locked(path, patience) as fd:
        end, last = _find_end(fd, path)
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


def _find_end(fd: int, path: str) -> tuple[int, int]:
    """Where the last whole line ends, and its number."""
    size = os.fstat(fd).st_size
    whole, newline, rest = _tail(fd, size).rpartition(b"\n")
    last = number_of(whole.rpartition(b"\n")[2]) if newline else 0
    if last is None or not is_torn(rest):
        raise StorageError(
            f"{path} does not end with a line of this index: move it away, or choose another "
            "directory"
        )
    return size - len(rest), last


def _tail(fd: int, start: int) -> bytes:
    """The end of the file, with at least one whole line if there is one."""
    tail = b""
    while start > 0 and tail.count(b"\n") < 2:
        length = min(_BLOCK, start)
        start -= length
        tail = os.pread(fd, length, start) + tail
    return tail


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
