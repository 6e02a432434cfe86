"""Temporary files, named for the process that they belong to.

So those of a dead one can be told from those of a live one.
"""

from __future__ import annotations

import errno
import itertools
import os
import time

from data_fetcher_core.queue.consumers import (
    Whereabouts,
    here,
    is_surely_dead,
    make_name,
    place_of,
)
from data_fetcher_core.storage.disk import NEW, make_directory, remove, write_at

_OLD = 24 * 3600.0


class Scratch:
    """A directory of temporary files, shared by processes; a private one by those of one user."""

    def __init__(self, directory: str, *, private: bool = False) -> None:
        self.directory = directory
        self._private = private
        self._beginning = ""
        self._pid = 0
        self._numbers = itertools.count()

    def create(self, data: bytes) -> str:
        """A new file with these bytes, or none: where it is."""
        path = self._new_path()
        try:
            self._write(path, data)
        except OSError:
            remove(path)
            raise
        return path

    def sweep(self) -> None:
        """Remove what dead processes left behind."""
        self._make_directory()
        ours, now = here(), time.time()
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if _is_left_behind(entry, ours, now):
                    remove(entry.path)

    def _write(self, path: str, data: bytes) -> None:
        try:
            write_at(path, 0, data, NEW)
        except FileNotFoundError:
            self._make_directory()
            write_at(path, 0, data, NEW)

    def _new_path(self) -> str:
        if self._pid != os.getpid():
            self._make_directory()
            name = make_name(here()).decode().replace("/", "-")
            self._beginning, self._pid = f"{self.directory}/{name}-", os.getpid()
        return f"{self._beginning}{next(self._numbers)}"

    def _make_directory(self) -> None:
        make_directory(self.directory, 0o700 if self._private else 0o777)
        if self._private and os.lstat(self.directory).st_uid != os.geteuid():
            # Among everybody's temporary files, anybody may have made it first.
            raise PermissionError(errno.EPERM, "it belongs to another user", self.directory)


def _is_left_behind(entry: os.DirEntry[str], ours: Whereabouts, now: float) -> bool:
    """Its process is dead; or cannot be asked, on another host or boot, and long silent."""
    name = os.fsencode(entry.name)
    theirs = place_of(name)
    if theirs is None:
        return False
    if theirs[:3] == ours[:3]:
        return is_surely_dead(name, ours)
    try:
        return now - entry.stat(follow_symlinks=False).st_mtime > _OLD
    except FileNotFoundError:
        return False
