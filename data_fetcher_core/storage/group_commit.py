"""Many who commit at one moment are served by one hop into a thread.

What is handed in while a batch is being written goes into the next one. Batches follow each
other by the callback of the one before: there is no leader whose cancellation could leave the
others waiting, and no task that stays behind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from data_fetcher_core.errors import StorageError
from data_fetcher_core.queue.batching import copy_error
from data_fetcher_core.storage.threads import Threads, wait_out

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Outcomes: TypeAlias = Sequence[Answer | Exception]


class GroupCommit(Generic[Item, Answer]):
    """``work`` gets what came together and answers, or fails, for each of them."""

    def __init__(
        self, threads: Threads, work: Callable[[list[Item]], Outcomes[Answer]], *, most: int
    ) -> None:
        self._threads = threads
        self._work = work
        self._most = most
        self._loop: asyncio.AbstractEventLoop | None = None
        self._busy = False
        self._start_over()

    async def submit(self, item: Item) -> Answer:
        """What became of ``item``. Cancelled before its turn, it is not touched."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._start_over(loop)
        outcome: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((item, outcome))
        if not self._busy:
            # Those who are about to commit in this very turn of the loop come along.
            self._busy = True
            loop.call_soon(self._send)
        try:
            return await outcome
        except asyncio.CancelledError:
            await self._let_go(outcome)
            raise

    async def finish(self) -> None:
        """Return when nothing is under way."""
        while self._busy and self._loop is asyncio.get_running_loop():
            if self._job is None:
                await asyncio.sleep(0)
            else:
                await asyncio.wait([self._job])

    def _start_over(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Forget those who waited on another loop: it has ended, and they with it."""
        self._loop = loop
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._under_way: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._job: asyncio.Future[Outcomes[Answer]] | None = None
        self._busy = False

    async def _let_go(self, outcome: asyncio.Future[Answer]) -> None:
        """Its item is being written: stay until that is over, so that the caller may clean up."""
        if self._job is not None and any(outcome is other for _, other in self._under_way):
            await wait_out(self._job)

    def _send(self) -> None:
        self._under_way = self._next_batch()
        self._busy = bool(self._under_way)
        if not self._busy:
            return
        try:
            self._job = self._threads.start(self._attempt, [item for item, _ in self._under_way])
        except StorageError as error:
            self._answer([copy_error(error) for _ in self._under_way])
        else:
            self._job.add_done_callback(self._written)

    def _next_batch(self) -> list[tuple[Item, asyncio.Future[Answer]]]:
        batch: list[tuple[Item, asyncio.Future[Answer]]] = []
        while self._waiting and len(batch) < self._most:
            item, outcome = self._waiting.popleft()
            if not outcome.done():
                batch.append((item, outcome))
        return batch

    def _attempt(self, items: list[Item]) -> Outcomes[Answer]:
        try:
            return self._work(items)
        except Exception as error:  # noqa: BLE001 - handed to every caller of the batch
            return [copy_error(error) for _ in items]

    def _written(self, job: asyncio.Future[Outcomes[Answer]]) -> None:
        if self._job is job and not job.cancelled():
            self._answer(job.result())

    def _answer(self, outcomes: Outcomes[Answer]) -> None:
        batch, self._under_way, self._job = self._under_way, [], None
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if future.done():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        asyncio.get_running_loop().call_soon(self._send)
