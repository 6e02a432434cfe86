"""What becomes of a request that failed: decided from its error, then carried out."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from data_fetcher_core.errors import (
    FetchError,
    OutOfResources,
    Postponed,
    QueueClosed,
    Skipped,
    StorageError,
    StorageFull,
)
from data_fetcher_core.events import LaneShut, NotFetched, Subscriber
from data_fetcher_core.fetcher.breakers import Breakers
from data_fetcher_core.fetcher.pausing import Pauses
from data_fetcher_core.fetcher.result import MOST_ERRORS
from data_fetcher_core.queue import KVStoreQueue, Lease
from data_fetcher_core.retry import Bury
from data_fetcher_core.urls import public_url

T = TypeVar("T")
_log = logging.getLogger("data_fetcher_core.fetcher")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an error says. ``blames_host`` counts for the breaker."""

    is_hopeless: bool = False
    blames_host: bool = False
    shut_for: float = 0.0


def judge(error: Exception) -> Verdict:
    """A host is blamed for what it answered or did not; never for an error of a recipe."""
    if isinstance(error, FetchError):
        return Verdict(
            is_hopeless=not error.retryable,
            blames_host=error.retryable,
            shut_for=error.retry_after or 0.0,
        )
    return Verdict()


class Failures:
    """Settles the leases of requests that failed."""

    def __init__(
        self,
        queue: KVStoreQueue,
        namespace: str,
        *,
        breakers: Breakers,
        pauses: Pauses,
        tell: Subscriber,
    ) -> None:
        self._queue = queue
        self._namespace = namespace
        self._breakers = breakers
        self._pauses = pauses
        self._tell = tell
        self.last: deque[str] = deque(maxlen=MOST_ERRORS)

    async def settle(self, lease: Lease, error: Exception) -> bool:
        """Whether this was the end of the request."""
        if isinstance(error, Postponed):
            await self._postpone(lease, error)
            return False
        if isinstance(error, Skipped):
            await self._insist(lease.complete)
            self._tell(NotFetched(self._namespace, _url(lease), str(error)))
            return True
        if isinstance(error, StorageError | OutOfResources):
            await self._keep(lease, error)
            return False
        if isinstance(error, QueueClosed) and self._queue.is_shut:
            await self._insist(lease.give_back)
            return False
        return await self._fail(lease, error, judge(error))

    async def _insist(self, act: Callable[[], Awaitable[T]]) -> T:
        return await self._pauses.insist(act, needs_room=False)

    async def _keep(self, lease: Lease, error: StorageError | OutOfResources) -> None:
        """No request is to blame for a storage without room: that passes.

        Nor for one that is broken, or for what this process lacks: these end the run.
        """
        await self._insist(lease.give_back)
        if not isinstance(error, StorageFull):
            raise error
        self._pauses.begin(error)

    async def _postpone(self, lease: Lease, error: Postponed) -> None:
        """What the run was told to wait between two requests is not made shorter by the host."""
        if error.interval > lease.interval:
            await self._insist(lambda: self._queue.pace(lease.lane, interval=error.interval))
            await self._insist(lambda: self._queue.shut(lease.lane, error.interval))
        await self._insist(lease.give_back)

    async def _fail(self, lease: Lease, error: Exception, verdict: Verdict) -> bool:
        if not isinstance(error, FetchError):
            _log.warning("%s failed", _url(lease), exc_info=error)
        if verdict.shut_for:
            await self._insist(lambda: self._queue.shut(lease.lane, verdict.shut_for))
            self._tell(LaneShut(self._namespace, lease.lane, verdict.shut_for, str(error)))
        if verdict.blames_host:
            await self._breakers.note_bad(lease)
        if verdict.is_hopeless:
            await self._insist(lambda: lease.bury(str(error), error))
        elif not isinstance(await self._insist(lambda: lease.fail(error)), Bury):
            return False
        self.last.append(f"{_url(lease)}: {error}")
        return True


def _url(lease: Lease) -> str:
    return str(public_url(lease.item.url))
