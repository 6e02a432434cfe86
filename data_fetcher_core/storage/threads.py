"""Blocking work, off the loop, in threads of its own.

The loop's own threads look up names and may all be waiting for a slow server; the disk is not
to wait for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple, Unpack

import anyio

from data_fetcher_core.errors import StorageError

T = TypeVar("T")
Args = TypeVarTuple("Args")
_MOST = 4


class Threads:
    """A few threads, started when needed."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    def start(self, work: Callable[[Unpack[Args]], T], *args: *Args) -> asyncio.Future[T]:
        try:
            return asyncio.get_running_loop().run_in_executor(self._threads(), work, *args)
        except RuntimeError as error:
            self._pool = None
            raise StorageError(f"no thread can be had for the storage: {error}") from error

    async def run(self, work: Callable[[Unpack[Args]], T], *args: *Args) -> T:
        """Its result. A caller that is cancelled leaves when the work has ended, not before."""
        job = self.start(work, *args)
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            await wait_out(job)
            raise

    def close(self) -> None:
        """Let the threads go; the next work starts new ones."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    def _threads(self) -> ThreadPoolExecutor:
        # A forked child has the object, but not the threads.
        if self._pool is None or self._pid != os.getpid():
            self._pool = ThreadPoolExecutor(_MOST, thread_name_prefix="storage")
            self._pid = os.getpid()
        return self._pool


async def wait_out(job: asyncio.Future[T]) -> None:
    """Return when the job has ended, however often the caller is cancelled meanwhile.

    For a caller that has been cancelled, and says so when this returns.
    """
    with anyio.CancelScope(shield=True):
        while not job.done():
            try:
                await asyncio.wait([job])
            except asyncio.CancelledError:
                continue
    if not job.cancelled():
        job.exception()
