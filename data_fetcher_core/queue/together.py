"""Many who need the same thing at once: the first one does it, the others wait for it, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar, cast
from weakref import WeakSet

from data_fetcher_core.queue.batching import copy_error

T = TypeVar("T")


class Together(Generic[T]):
    """Work that is done once for all who ask while it is under way; so is its failure."""

    def __init__(self) -> None:
        self._under_way: asyncio.Future[T] | None = None
        self._asking: WeakSet[asyncio.Task[Any]] = WeakSet()

    @property
    def anybody(self) -> bool:
        """Whether anybody asks here: of those that wait, one does it if the first gives up."""
        loop = asyncio.get_running_loop()
        return any(task.get_loop() is loop for task in self._asking)

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._asking.add(task)
        try:
            return await self._share(work)
        finally:
            self._asking.discard(task)

    async def _share(self, work: Callable[[], Awaitable[T]]) -> T:
        while True:
            outcome = self._under_way
            if outcome is None or outcome.get_loop() is not asyncio.get_running_loop():
                return await self._lead(work)
            await asyncio.wait([outcome])
            if not outcome.cancelled():
                error = outcome.exception()
                if isinstance(error, Exception):
                    raise copy_error(error)
                return outcome.result()

    async def _lead(self, work: Callable[[], Awaitable[T]]) -> T:
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._under_way = outcome
        try:
            done = await work()
        except Exception as error:
            outcome.set_exception(copy_error(error))
            # Perhaps nobody else waits for it; then it is not forgotten either.
            outcome.exception()
            raise
        else:
            outcome.set_result(done)
            return done
        finally:
            outcome.cancel()
            self._under_way = None
