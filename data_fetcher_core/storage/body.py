"""The bytes of one page while they arrive: in memory first, then in a temporary file."""

from __future__ import annotations

import os
from hashlib import sha256

from data_fetcher_core.storage.disk import remove, write_at
from data_fetcher_core.storage.scratch import Scratch


class Body:
    """``path`` is its temporary file, if it has one; ``held`` counts the bytes not in it yet."""

    __slots__ = ("_chunks", "_hash", "_in_file", "_ragged", "held", "path")

    def __init__(self) -> None:
        self.path: str | None = None
        self.held = 0
        self._in_file = 0
        self._ragged = False
        self._chunks: list[bytes] = []
        self._hash = sha256()

    @property
    def length(self) -> int:
        return self._in_file + self.held

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def keep(self, chunk: bytes) -> None:
        """In memory."""
        self._hash.update(chunk)
        self._chunks.append(chunk)
        self.held += len(chunk)

    def content(self) -> bytes:
        """All of it, of a body that has no file."""
        return b"".join(self._chunks)

    def spill(self, scratch: Scratch, chunk: bytes) -> None:
        """Into the file, with this last chunk; a failure takes nothing of it. Blocking."""
        self._write_down(scratch, b"".join([*self._chunks, chunk]))
        self._hash.update(chunk)

    def settle(self, scratch: Scratch) -> str:
        """Make the file hold just this body; where it is. Blocking."""
        path = self.path
        if path is None or self._chunks:
            path = self._write_down(scratch, self.content())
        if self._ragged:
            os.truncate(path, self._in_file)
        return path

    def drop(self) -> None:
        """Remove the file. Blocking."""
        if self.path is not None:
            remove(self.path)

    def _write_down(self, scratch: Scratch, data: bytes) -> str:
        if self.path is None:
            self.path = scratch.create(data)
        else:
            self._append(self.path, data)
        self._in_file += len(data)
        self._chunks.clear()
        self.held = 0
        return self.path

    def _append(self, path: str, data: bytes) -> None:
        try:
            write_at(path, self._in_file, data)
        except OSError:
            # Part of it may be there; what comes next need not cover it.
            self._ragged = True
            raise
