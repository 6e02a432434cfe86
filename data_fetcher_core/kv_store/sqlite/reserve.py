"""Room kept for settling when the disk is full (``-reserve``).

On a full disk even a DELETE fails, for it is written to the log first. So a file lies beside the
database that can be given up: then what is settled still passes, and nothing new is taken in until
the file is whole again.

It is given up by halves. A log that had all of the room could not be used again: moving it into the
database makes that longer, if only by a page. What is kept is lent for moving the log, and put back
from what the log leaves; so nothing is committed that makes the database longer by more than that.
"""

from __future__ import annotations

import errno
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from data_fetcher_core.clock import Clock
from data_fetcher_core.kv_store.sqlite.faults import is_full

_log = logging.getLogger("data_fetcher_core.kv_store.sqlite")

LEAST_RESERVE = 64 * 1024
_LOOK_AGAIN = 1.0
# About what SQLite needs to open a database: its index of the log, and a little.
_LEAST_ROOM = 64 * 1024
# File systems give and take whole blocks.
_BLOCK = 4096
# The log has what the database will have, and every page that is changed besides.
_AMPLE = 4
# What passes; anything else that is not a lack of room will be the same the next time.
_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR})


class Reserve:
    """The file, and whether new data must wait for it."""

    def __init__(self, path: Path, size: int, clock: Clock) -> None:
        self._path = path
        self._size = size
        self._clock = clock
        self._next_look = float("-inf")
        self.refusing = False

    @property
    def size(self) -> int:
        """How much room can be counted on."""
        return self._size

    def look(self) -> None:
        """Decide whether new data is refused; costs a ``stat`` while there is room."""
        if not self.refusing or self._clock.monotonic() >= self._next_look:
            self.restore()

    def restore(self) -> None:
        """Make the file whole; where that fails, nothing new is taken in."""
        self.refusing = not self._stands()
        if self.refusing:
            self._wait_a_little()

    def spend(self) -> bool:
        """Give half of the file up; whether that made room."""
        before = self._length()
        given = before >= 2 * _BLOCK and self._halve(before)
        if given:
            self.refuse()
        if given and before >= self._size:
            self._tell()
        return given

    def lend(self, use: Callable[[], object]) -> None:
        """Make room for ``use`` and put the file back; some is given up where that fails."""
        was_refusing = self.refusing
        if self._removed():
            use()
            self.restore()
            if self.refusing and not was_refusing:
                self._tell()

    def covers(self, growth: int) -> bool:
        """Whether the log can be moved after it has made the database longer by so much."""
        if not self._size or growth <= self._length():
            return True
        return not self.refusing and self._room() >= _AMPLE * growth

    def refuse(self) -> None:
        """Take in nothing new for a while."""
        self.refusing = True
        self._wait_a_little()

    def no_room(self) -> bool:
        """Whether the disk (or the quota) is really full: found by trying."""
        try:
            with tempfile.TemporaryFile(dir=self._path.parent, buffering=0) as probe:
                written = probe.write(os.urandom(_LEAST_ROOM))
                os.fsync(probe.fileno())
        except OSError as error:
            return is_full(error)
        return written < _LEAST_ROOM

    def _removed(self) -> bool:
        try:
            self._path.unlink()
        except OSError:  # it is not there, or is no file: nothing that would make room
            return False
        return True

    def _halve(self, length: int) -> bool:
        # Some file systems need room to make a file shorter, and none to remove it.
        return self._cut(_whole_blocks(length / 2)) or self._removed()

    def _cut(self, length: int) -> bool:
        try:
            os.truncate(self._path, length)
        except OSError:  # it is no file
            return False
        return True

    def _tell(self) -> None:
        _log.warning("the disk is full: %s was given up, only settling goes on", self._path)

    def _wait_a_little(self) -> None:
        self._next_look = self._clock.monotonic() + _LOOK_AGAIN

    def _stands(self) -> bool:
        """Whether the file is whole, made so if need be; one not wanted counts as whole."""
        length = self._length()
        try:
            return length >= self._size or self._lengthened(length)
        except OSError as error:
            if is_full(error) or error.errno in _PASSING:
                return False
            _log.warning("no reserve for a full disk: %s cannot be made: %s", self._path, error)
            self._size = 0
        return True

    def _length(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:  # it is not there, or cannot be: who tries to make it is told
            return 0

    def _lengthened(self, length: int) -> bool:
        """Make it as long as there is room for; whether it is whole now.

        Of random bytes, for what compresses or is a hole takes no room that could be given up.
        """
        by = _affordable(length, self._size, self._room())
        while by and not self._append(os.urandom(by), after=length):
            # There is less room than was told, as under a quota.
            by = _whole_blocks(by / 2)
        return length + by >= self._size

    def _room(self) -> int:
        status = os.statvfs(self._path.parent)
        return status.f_bavail * status.f_frsize

    def _append(self, filling: bytes, *, after: int) -> bool:
        """``False`` if there was no room for it."""
        try:
            with self._path.open("r+b" if after else "wb") as file:
                file.seek(after)
                file.write(filling)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self._cut(after)
            if is_full(error):
                return False
            raise
        return True


def _affordable(length: int, whole: int, room: int) -> int:
    """How much longer to make it: whole, or at least as long as the room that is left then."""
    if room >= whole - length:
        return whole - length
    return max(0, _whole_blocks((room - length) / 2))


def _whole_blocks(size: float) -> int:
    return int(size // _BLOCK) * _BLOCK
