"""Taking requests in: in steps of a thousand, in order, waiting for room where asked to."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from data_fetcher_core.core import Enqueued
from data_fetcher_core.errors import DataFetcherError, QueueClosed, QueueFull, ValidationError
from data_fetcher_core.queue.client import Client
from data_fetcher_core.queue.engine import (
    MOST_CHILDREN,
    STEP,
    Addition,
    Admission,
    Admitted,
    NewRequest,
)
from data_fetcher_core.queue.entries import Defaults, read_checkpoint
from data_fetcher_core.queue.racing import race
from data_fetcher_core.queue.settlements import enqueued

_LONGEST_WAIT = 10.0


class Intake:
    """One call of ``enqueue``."""

    def __init__(self, client: Client, capacity: int) -> None:
        self._client = client
        self._capacity = capacity
        self._admitted: list[Admitted] = []

    async def run(
        self, items: Iterable[Any], defaults: Defaults, checkpoint: Mapping[str, Any] | None
    ) -> Enqueued:
        try:
            for addition in self._additions(items, defaults, checkpoint):
                await self._add(addition)
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
        while chunk := list(itertools.islice(read, STEP)):
            yield Addition(chunk)

    def _whole(self, requests: list[NewRequest], checkpoint: Mapping[str, Any]) -> Addition:
        most = min(MOST_CHILDREN, self._capacity or MOST_CHILDREN)
        if len(requests) > most:
            raise ValidationError(
                f"a checkpoint is saved in one step with its requests, and {most} is the most: "
                "enqueue them in parts, each with the checkpoint it leads to"
            )
        return Addition(requests, read_checkpoint(checkpoint), whole=True)

    async def _add(self, addition: Addition) -> None:
        """Add it all, in order, however long room takes; or raise :class:`QueueFull`."""
        while True:
            if self._client.shut.is_set():
                raise QueueClosed("the queue was shut down and takes nothing new")
            mark = self._client.engine.watch()
            admitted = await self._client.add(addition)
            done = list(itertools.takewhile(_is_in, admitted))
            self._admitted += done
            if len(done) == len(admitted):
                return
            if self._client.options.on_full == "raise":
                raise QueueFull(
                    f"the queue holds {self._capacity} requests, as many as its capacity allows"
                )
            addition = _rest(addition, len(done))
            await self._wait_for_room(mark)

    async def _wait_for_room(self, mark: int) -> None:
        async def shut() -> None:
            await self._client.shut.wait()

        await race(shut, lambda: self._client.wait_for_room(mark, _LONGEST_WAIT))


def _is_in(admitted: Admitted) -> bool:
    return admitted.admission is not Admission.FULL


def _rest(addition: Addition, done: int) -> Addition:
    rest: Sequence[NewRequest] = addition.requests[done:]
    return Addition(rest, addition.checkpoint, addition.whole)
