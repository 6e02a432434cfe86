"""The file beside the database (``-lock``): whose turn it is, and what has been promised.

It is locked over every transaction with the checkpoint that may follow, and over opening and
closing: SQLite before 3.51.3 has a rare race between processes that write and reset the
write-ahead log at the same time, and it ends in a corrupt database.

It also says how many commits were acknowledged. The database counts its commits itself, in the
transaction; a database that has seen fewer than its companion says has lost some: its ``-wal``
was removed or damaged, or an older copy took its place. The number is written after the commit and
before anybody is answered, so a process may be killed at any moment without being accused. Nor
may the power be cut: no write of it, torn at whatever byte, leaves a number that is too high.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path

from data_fetcher_core.errors import ConfigurationError

_LINE = b"data_fetcher_core: %020d commits acknowledged\n"
_PATTERN = re.compile(rb"data_fetcher_core: (\d{20}) commits acknowledged\n")
_LENGTH = len(_LINE % 0)
# What a power cut may leave of the first line ever written, before anybody was answered.
_BEGUN = re.compile(
    b"".join(rb"[\x00\d]" if char == b"0"[0] else b"[\0%c]" % char for char in _LINE % 0)
)
_WAITING, _NOBODY = b"waiting\n", b"nobody.\n"


class Companion:
    """One process's hold on the companion file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._last = 0

    def try_lock(self) -> bool:
        """Take the lock unless another has it; leave word that somebody waits."""
        while True:
            fd = self._fd = self._opened()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._leave_word(fd, _WAITING)
                return False
            if self._in_place(fd):
                return True
            self.close()

    def unlock(self) -> bool:
        """Let go; whether another has been waiting for it."""
        if self._fd is None:
            return False
        waited = self._is_waited_for(self._fd)
        if waited:
            self._leave_word(self._fd, _NOBODY)
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return waited

    def acknowledged(self) -> int | None:
        """How many commits were acknowledged; ``None`` where no store has been."""
        # A waiter's word alone leaves a hole before it.
        line = os.pread(self._opened(), _LENGTH, 0).ljust(_LENGTH, b"\0")
        match = _PATTERN.fullmatch(line)
        if match is None and _BEGUN.fullmatch(line):
            self._last = 0
            return None
        if match is None:
            raise ConfigurationError(
                f"{self.path} is not the companion of a store: move it away, or use another path"
            )
        self._last = int(match[1])
        return self._last

    def acknowledge(self, commits: int) -> None:
        for number in _ascent(self._last, commits):
            os.pwrite(self._opened(), _LINE % number, 0)
        self._last = commits

    def sync(self) -> None:
        os.fsync(self._opened())

    def holder(self) -> str:
        """Who has the lock, as far as the system tells."""
        try:
            return flock_holder(Path("/proc/locks").read_text(), self.path.stat().st_ino)
        except OSError:
            return "another process"

    def close(self) -> None:
        """Let go of the file, and of the lock if it was held."""
        fd, self._fd = self._fd, None
        if fd is not None:
            # A child between fork and exec has this file too: closing here would not unlock it.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def _opened(self) -> int:
        if self._fd is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self.path, flags, 0o666)
        return self._fd

    def _is_waited_for(self, fd: int) -> bool:
        # What was committed is committed, whether or not this can be read.
        with suppress(OSError):
            return os.pread(fd, len(_WAITING), _LENGTH) == _WAITING
        return False

    def _leave_word(self, fd: int, word: bytes) -> None:
        # It only helps others to their turn: without it they still get one, later.
        with suppress(OSError):
            os.pwrite(fd, word, _LENGTH)

    def _in_place(self, fd: int) -> bool:
        """Whether the locked file is still the one others will lock."""
        try:
            return os.path.samestat(os.fstat(fd), self.path.stat())
        except FileNotFoundError:
            return False


def _ascent(low: int, high: int) -> list[int]:
    """Numbers to write one after the other: no mixture of the digits of two exceeds ``high``.

    From 0199 straight to 0200 a torn write could leave 0299; by way of 0100 it cannot.
    """
    before, after = b"%020d" % low, b"%020d" % high
    if all(old <= new for old, new in zip(before, after, strict=True)):
        return [high]
    lowest = next(10**n for n in range(21) if low // 10**n == high // 10**n)
    return [high // lowest * lowest, high]


def flock_holder(locks: str, inode: int) -> str:
    """Who holds the inode, by the text of ``/proc/locks``."""
    for line in locks.splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
            return f"process {fields[4]}"
    return "another process"
