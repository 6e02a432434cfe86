"""Coalescing: what is asked while a batch is on its way goes out together as the next one.

There is no added delay when idle and there are full batches when busy. A batch runs in a task of
its own, so a caller that is cancelled cannot tear it: it was not sent yet and leaves it, or it
was sent and its outcome stands (or is undone by ``abandon``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.queue.tasks import OwnedTasks

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """One kind of operation: many callers, one batch in flight."""

    def __init__(
        self,
        name: str,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        tasks: OwnedTasks,
        *,
        most: int,
        weigh: Callable[[Item], int] = lambda _: 1,
        abandon: Callable[[Item, Answer], None] = lambda _, __: None,
    ) -> None:
        self._name = name
        self._send = send
        self._tasks = tasks
        self._most = most
        self._weigh = weigh
        self._abandon = abandon
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self.running = False

    def submit(self, item: Item) -> asyncio.Future[Answer]:
        """Send ``item`` with the next batch; its outcome, or the error of the batch."""
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, outcome))
        if not self.running:
            self.running = True
            self._tasks.start(self._run(), self._name)
        return outcome

    async def _run(self) -> None:
        try:
            while batch := self._next_batch():
                await self._send_batch(batch)
        finally:
            self.running = False

    def _next_batch(self) -> list[tuple[Item, asyncio.Future[Answer]]]:
        batch: list[tuple[Item, asyncio.Future[Answer]]] = []
        weight = 0
        while self._waiting:
            item, outcome = self._waiting[0]
            if outcome.done():
                self._waiting.popleft()
                continue
            weight += self._weigh(item)
            if batch and weight > self._most:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _send_batch(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        outcomes: Sequence[Answer] = ()
        try:
            outcomes = await self._send([item for item, _ in batch])
        except StoreUnavailable as error:
            # Who came meanwhile has waited for the same silence, and would wait for it again.
            _fail([*batch, *self._waiting], error)
            self._waiting.clear()
        except Exception as error:  # noqa: BLE001 - handed to every caller of the batch
            _fail(batch, error)
        except BaseException:
            _cancel([*batch, *self._waiting])
            raise
        else:
            self._hand_out(batch, outcomes)
        finally:
            # Whoever keeps the error keeps this frame: not the callers as well, and their leases.
            batch.clear()
            outcomes = ()

    def _hand_out(
        self,
        batch: Sequence[tuple[Item, asyncio.Future[Answer]]],
        outcomes: Sequence[Answer],
    ) -> None:
        for (item, future), outcome in zip(batch, outcomes, strict=True):
            if future.done():
                self._abandon(item, outcome)
            else:
                future.set_result(outcome)


def _fail(batch: Sequence[tuple[Item, asyncio.Future[Answer]]], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(copy_error(error))
            # The caller may have gone meanwhile; its error must not be reported as forgotten.
            future.exception()


def _cancel(batch: Sequence[tuple[Item, asyncio.Future[Answer]]]) -> None:
    for _, future in batch:
        future.cancel()


def copy_error(error: Exception) -> Exception:
    """Each caller raises an error of its own: one object would gather all their tracebacks."""
    copied = type(error).__new__(type(error), *error.args)
    copied.args = error.args
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    copied.__suppress_context__ = True
    return copied
