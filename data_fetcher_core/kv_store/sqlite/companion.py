"""The file beside the database (``-lock``): whose turn it is, and what has been promised.

It is locked over every transaction with the checkpoint that may follow, and over opening and
closing: SQLite before 3.51.3 has a rare race between processes that write and reset the
write-ahead log at the same time, and it ends in a corrupt database.

It also says how many commits were acknowledged. The database counts its commits itself, in the
transaction; a database that has seen fewer than its companion says has lost some: its ``-wal``
was removed or damaged, or an older copy took its place. The number is written after the commit and
before anybody is answered, so a process may be killed at any moment without being accused.
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
_WAITING, _NOBODY = b"waiting\n", b"nobody.\n"


class Companion:
    """One process's hold on the companion file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

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
        waited = os.pread(self._fd, len(_WAITING), _LENGTH) == _WAITING
        if waited:
            self._leave_word(self._fd, _NOBODY)
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return waited

    def acknowledged(self) -> int | None:
        """How many commits were acknowledged; ``None`` where no store has been."""
        line = os.pread(self._opened(), _LENGTH, 0)
        # A waiter's word alone leaves a hole before it.
        if not line.strip(b"\0"):
            return None
        match = _PATTERN.fullmatch(line)
        if match is None:
            raise ConfigurationError(
                f"{self.path} is not the companion of a store: move it away, or use another path"
            )
        return int(match[1])

    def acknowledge(self, commits: int) -> None:
        os.pwrite(self._opened(), _LINE % commits, 0)

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


def flock_holder(locks: str, inode: int) -> str:
    """Who holds the inode, by the text of ``/proc/locks``."""
    for line in locks.splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
            return f"process {fields[4]}"
    return "another process"
