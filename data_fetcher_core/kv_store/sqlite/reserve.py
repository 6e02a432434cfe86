"""Room kept for settling when the disk is full (``-reserve``).

On a full disk even a DELETE fails, for it is written to the log first. So a file lies beside the
database that can be given up: then what is settled still passes, and nothing new is taken in until
the file could be put back.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from data_fetcher_core.clock import Clock
from data_fetcher_core.kv_store.sqlite.faults import is_full

_log = logging.getLogger("data_fetcher_core.kv_store.sqlite")

_LOOK_AGAIN = 1.0
# About what SQLite needs to open a database: its index of the log, and a little.
_LEAST_ROOM = 64 * 1024


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
        """Put the file back if it is gone; where that fails, nothing new is taken in."""
        self.refusing = not self._stands()
        if self.refusing:
            self._wait_a_little()

    def spend(self) -> bool:
        """Give the file up; whether there was one."""
        given = self._removed()
        if given:
            self.refuse()
            self._tell()
        return given

    def lend(self, use: Callable[[], object]) -> None:
        """Make room for ``use`` and put the file back; it is given up only where that fails."""
        if self._removed():
            use()
            self.restore()
            if self.refusing:
                self._tell()

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

    def _tell(self) -> None:
        _log.warning("the disk is full: %s was given up, only settling goes on", self._path)

    def _wait_a_little(self) -> None:
        self._next_look = self._clock.monotonic() + _LOOK_AGAIN

    def _stands(self) -> bool:
        """Whether the file is there, put back if need be; one not wanted counts as there."""
        try:
            if not self._size or self._whole():
                return True
            self._write()
        except OSError as error:
            if is_full(error):
                return False
            _log.warning("no reserve for a full disk: %s cannot be made: %s", self._path, error)
            self._size = 0
        return True

    def _whole(self) -> bool:
        try:
            return self._path.stat().st_size >= self._size
        except FileNotFoundError:
            return False

    def _write(self) -> None:
        """Random bytes, for what compresses or is a hole takes no room that could be given up."""
        status = os.statvfs(self._path.parent)
        if status.f_bavail * status.f_frsize < self._size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        try:
            with self._path.open("wb") as file:
                file.write(os.urandom(self._size))
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                self._path.unlink()
            raise
