"""Takes the bytes of one page, whatever the storage behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from data_fetcher_core.core import Stored
from data_fetcher_core.errors import ValidationError
from data_fetcher_core.storage.body import Body
from data_fetcher_core.storage.faults import storage_error
from data_fetcher_core.storage.scratch import Scratch
from data_fetcher_core.storage.threads import Threads

KEPT_IN_MEMORY = 1024 * 1024
# A chunk so large is hashed in a thread, where it holds up nobody.
_LARGE = 256 * 1024


class PageSink:
    """Nothing is visible before ``commit``; what failed may be tried again.

    A ``write`` that failed took nothing of its chunk, and a ``commit`` that failed lost nothing.
    """

    __slots__ = ("_body", "_put", "_scratch", "_stored", "_threads", "_thrown_away")

    def __init__(
        self, threads: Threads, scratch: Scratch, put: Callable[[Body], Awaitable[Stored]]
    ) -> None:
        self._threads = threads
        self._scratch = scratch
        self._put = put
        self._body = Body()
        self._stored: Stored | None = None
        self._thrown_away = False

    async def write(self, chunk: bytes) -> None:
        if self._stored is not None or self._thrown_away:
            self._refuse()
        if len(chunk) > _LARGE or self._body.held + len(chunk) > KEPT_IN_MEMORY:
            await self._take_in_a_thread(chunk)
        else:
            self._body.keep(chunk)

    async def commit(self) -> Stored:
        """Where the bytes are now; asked again, the same."""
        if self._stored is None:
            if self._thrown_away:
                self._refuse()
            self._stored = await self._put(self._body)
        return self._stored

    async def discard(self) -> None:
        self._thrown_away = self._stored is None
        if self._thrown_away and self._body.path is not None:
            await self._threads.run(self._body.drop)

    async def _take_in_a_thread(self, chunk: bytes) -> None:
        if self._body.held + len(chunk) <= KEPT_IN_MEMORY:
            await self._threads.run(self._body.keep, chunk)
            return
        try:
            await self._threads.run(self._body.spill, self._scratch, chunk)
        except OSError as error:
            raise storage_error(error, self._scratch.directory) from error

    def _refuse(self) -> None:
        done = "discarded" if self._thrown_away else "committed"
        raise ValidationError(f"this page was {done}: take a new sink from the storage's receive()")
