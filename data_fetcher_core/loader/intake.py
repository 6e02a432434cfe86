"""Where a body goes: into a storage if there is one, and into memory if it may be read there."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any

import anyio

from data_fetcher_core.core import Sink, Stored
from data_fetcher_core.errors import DataFetcherError
from data_fetcher_core.loader.body import Body
from data_fetcher_core.loader.charset import SNIFFED
from data_fetcher_core.loader.gathering import Gathering


class Intake:
    """Takes one body. What was written is discarded unless it was committed."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self._sink: Sink | None = None
        self._digest = None if storage is not None else hashlib.sha256()
        self._keep = 0
        self._kept: Gathering | None = None
        self.body: bytes | None = None
        """The whole body, if it is kept."""
        self._length = 0
        self._head = b""

    @property
    def head(self) -> bytes:
        """How the body begins, kept or not."""
        return self._head

    async def take(self, body: Body, keep: int | None) -> None:
        """All of it. In memory it is kept up to so many bytes; for ``None`` never."""
        if keep is not None:
            self._keep, self._kept = keep, Gathering()
        if self._storage is not None:
            self._sink = self._storage.receive()
        while piece := await body.piece():
            self._remember(piece)
            if self._sink is not None:
                await self._sink.write(piece)
        if self._kept is not None:
            self.body, self._kept = self._kept.joined(), None

    def _remember(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._digest is not None:
            self._digest.update(piece)
        if len(self._head) < SNIFFED:
            self._head += piece[: SNIFFED - len(self._head)]
        if self._kept is None:
            return
        if self._length > self._keep:
            self._kept = None
        else:
            self._kept.add(piece)

    async def commit(self) -> Stored:
        """Where it is now; without a storage, only what it is."""
        if self._sink is not None:
            return await self._sink.commit()
        digest = self._digest.hexdigest() if self._digest is not None else ""
        return Stored(digest, self._length, "")

    async def discard(self) -> None:
        """Also when cancelled. The failure that led here is the one to tell."""
        if self._sink is not None:
            with anyio.CancelScope(shield=True), suppress(DataFetcherError):
                await self._sink.discard()
