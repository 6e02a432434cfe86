"""Taking requests in: in steps of a thousand, in order, waiting for room where asked to."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from data_fetcher_core.core import Enqueued
from data_fetcher_core.errors import DataFetcherError, QueueClosed, QueueFull, ValidationError
from data_fetcher_core.queue.client import Client
from data_fetcher_core.queue.engine import (
    MOST_CHILDREN,
    STEP,
    STEP_BYTES,
    Addition,
    Admission,
    Admitted,
    NewRequest,
    weight_of,
)
from data_fetcher_core.queue.entries import Defaults, read_checkpoint
from data_fetcher_core.queue.racing import race
from data_fetcher_core.queue.settlements import enqueued

_LONGEST_WAIT = 10.0


async def bring(client: Client, items: Iterable[Any]) -> Enqueued:
    """Take in what belongs to work in flight, also if the queue is full or was shut down."""
    return await Intake(client, 0, bound=False).run(items, Defaults(), None)


class Intake:
    """One call of ``enqueue``; what is not ``bound`` waits for nobody."""

    def __init__(self, client: Client, capacity: int, *, bound: bool = True) -> None:
        self._client = client
        self._capacity = capacity
        self._bound = bound
        self._admitted: list[Admitted] = []

    async def run(
        self, items: Iterable[Any], defaults: Defaults, checkpoint: Mapping[str, Any] | None
    ) -> Enqueued:
        try:
            additions = self._additions(items, defaults, checkpoint)
            addition = next(additions, None)
            while addition is not None:
                addition = await self._add_and_read_on(addition, additions)
        except DataFetcherError as error:
            error.accepted = int(enqueued(self._admitted))
            raise
        except Exception as error:
            error.add_note(f"{int(enqueued(self._admitted))} requests had been accepted before")
            raise
        return enqueued(self._admitted)

    def _additions(
        self, items: Iterable[Any], defaults: Defaults, checkpoint: Mapping[str, Any] | None
    ) -> Iterator[Addition]:
        read = (self._client.reader.read(item, defaults) for item in items)
        if checkpoint is not None:
            yield self._whole(list(itertools.islice(read, MOST_CHILDREN + 1)), checkpoint)
            return
        for chunk in _steps(read):
            yield Addition(chunk, bound=self._bound)

    def _whole(self, requests: list[NewRequest], checkpoint: Mapping[str, Any]) -> Addition:
        most = min(MOST_CHILDREN, self._capacity or MOST_CHILDREN)
        if len(requests) > most:
            raise ValidationError(
                f"a checkpoint is saved in one step with its requests, and {most} is the most: "
                "enqueue them in parts, each with the checkpoint it leads to"
            )
        return Addition(requests, read_checkpoint(checkpoint), whole=True)

    async def _add_and_read_on(
        self, addition: Addition, additions: Iterator[Addition]
    ) -> Addition | None:
        """Add it all, in order, however long room takes; or raise :class:`QueueFull`.

        While it is on its way, what comes next is read.
        """
        mark, adding = self._send(addition)
        if weight_of(addition.requests, STEP) >= STEP:
            await _let_go(adding)
        following, failure = _read_on(additions)
        while (rest := self._take_note(addition, await adding)) is not None:
            await self._wait_for_room(mark)
            addition = rest
            mark, adding = self._send(rest)
        if failure is not None:
            raise failure
        return following

    def _send(self, addition: Addition) -> tuple[int, asyncio.Future[Sequence[Admitted]]]:
        if self._bound and self._client.shut.is_set():
            raise QueueClosed("the queue was shut down and takes nothing new")
        return self._client.engine.watch(), self._client.add(addition)

    def _take_note(self, addition: Addition, admitted: Sequence[Admitted]) -> Addition | None:
        """What there was no room for."""
        done = list(itertools.takewhile(_is_in, admitted))
        self._admitted += done
        if len(done) == len(admitted):
            return None
        if self._client.options.on_full == "raise":
            raise QueueFull(
                f"the queue holds {self._capacity} requests, as many as its capacity allows"
            )
        return _rest(addition, len(done))

    async def _wait_for_room(self, mark: int) -> None:
        async def shut() -> None:
            await self._client.shut.wait()

        await race(shut, lambda: self._client.wait_for_room(mark, _LONGEST_WAIT))


def _steps(requests: Iterable[NewRequest]) -> Iterator[list[NewRequest]]:
    """As many at a time as a step may hold, by number and by bytes."""
    chunk: list[NewRequest] = []
    size = 0
    for request in requests:
        chunk.append(request)
        size += len(request.record)
        if len(chunk) == STEP or size >= STEP_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


async def _let_go(adding: asyncio.Future[Sequence[Admitted]]) -> None:
    """One turn of the loop, in which it is sent."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        adding.cancel()
        raise


def _read_on(additions: Iterator[Addition]) -> tuple[Addition | None, Exception | None]:
    """What comes next, or why it cannot be read: what is on its way is counted first."""
    try:
        return next(additions, None), None
    except Exception as error:  # noqa: BLE001 - whatever the caller's items raise is raised to it
        return None, error


def _is_in(admitted: Admitted) -> bool:
    return admitted.admission is not Admission.FULL


def _rest(addition: Addition, done: int) -> Addition:
    rest: Sequence[NewRequest] = addition.requests[done:]
    return Addition(rest, addition.checkpoint, addition.whole)
