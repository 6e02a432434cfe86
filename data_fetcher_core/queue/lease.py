"""A lease: a request in somebody's hands, to be settled once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeGuard

from data_fetcher_core.core import Enqueued, Failure, Priority
from data_fetcher_core.errors import LeaseLost, StoreError
from data_fetcher_core.queue.engine import Grant
from data_fetcher_core.queue.records import Record, unpack_failures
from data_fetcher_core.retry import Bury, Decision

if TYPE_CHECKING:
    from data_fetcher_core.queue.settlements import Settler


class LeaseState(Enum):
    HELD = "held"
    SETTLED = "settled"
    LOST = "lost"


def _is_of_the_page(exc: BaseException | None) -> TypeGuard[Exception]:
    return isinstance(exc, Exception) and not isinstance(exc, StoreError)


class Lease:
    """A request that belongs to this process until it is settled.

    As a context manager it settles itself: success completes, an exception asks the retry
    policy and goes no further, cancellation gives the request back and spends no attempt.
    """

    __slots__ = (
        "__weakref__",
        "_settler",
        "interval",
        "item",
        "lane",
        "lane_limit",
        "leased_at",
        "leased_on",
        "record",
        "state",
        "token",
    )

    def __init__(
        self, grant: Grant, record: Record, item: Any, settler: Settler, leased_at: float
    ) -> None:
        self.item = item
        self.lane = record.lane.decode()
        self.leased_at = leased_at
        self.leased_on = settler.clock.monotonic()
        self.state = LeaseState.HELD
        self.token = grant.token
        self.interval = grant.interval / 1e6
        self.lane_limit = grant.limit
        self.record = record
        self._settler = settler

    @property
    def id(self) -> str:
        return self.record.id.decode()

    @property
    def key(self) -> str | None:
        return self.record.key.decode() or None

    @property
    def priority(self) -> Priority:
        return Priority(self.record.priority)

    @property
    def attempts(self) -> int:
        """How many deliveries before this one ended in a release."""
        return self.record.attempts

    @property
    def deaths(self) -> int:
        """How many deliveries before this one ended with their process."""
        return self.record.deaths

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The last few failures, oldest first."""
        return unpack_failures(self.record.history)

    @property
    def now(self) -> float:
        """The store's clock, carried on from the lease by this process's monotonic one."""
        return self.leased_at + self._settler.clock.monotonic() - self.leased_on

    async def confirm(self) -> None:
        """Raise :class:`LeaseLost` if it is somebody else's by now, before you begin after a wait.

        The store is asked only if this process was silent for longer than a lease lasts.
        """
        await self._settler.confirm(self)

    async def complete(
        self,
        enqueue: Iterable[Any] = (),
        checkpoint: Mapping[str, Any] | None = None,
        result: Any = None,
    ) -> Enqueued:
        """Done, together with what it produced: all of it happens, or nothing does."""
        return await self._settler.complete(self, enqueue, checkpoint, result)

    async def progress(
        self, enqueue: Iterable[Any] = (), checkpoint: Mapping[str, Any] | None = None
    ) -> Enqueued:
        """A part is done: keep what it produced, and go on with the rest in another lease.

        All in one step. The request is back at the front of its place, with no attempt and no
        death to its name: it got somewhere.
        """
        return await self._settler.progress(self, enqueue, checkpoint)

    async def drop(self, checkpoint: Mapping[str, Any] | None = None) -> None:
        """Gone without having been done; counted with those that were cancelled."""
        await self._settler.drop(self, checkpoint)

    async def release(
        self,
        delay: float = 0.0,
        error: BaseException | str | None = None,
        priority: Priority | int | str | None = None,
    ) -> None:
        """Ready again after ``delay``; buried instead if its attempts are used up."""
        await self._settler.release(self, delay, error, priority)

    async def bury(self, detail: str = "", error: BaseException | str | None = None) -> None:
        """Not to be tried again."""
        await self._settler.bury(self, detail, error)

    async def give_back(self) -> None:
        """Back to the front of its place, as if it had never been leased."""
        await self._settler.give_back(self)

    async def fail(self, error: BaseException) -> Decision:
        """Let the retry policy decide what becomes of it; what it decided."""
        decision = self._settler.decide(self, error)
        if isinstance(decision, Bury):
            await self.bury(decision.detail, error)
        else:
            await self.release(decision.delay, error)
        return decision

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self.state is LeaseState.HELD:
            # Somebody else has a lost request now, and this was told to the subscribers.
            with suppress(LeaseLost):
                await self._settle_after(exc)
        elif self.state is LeaseState.SETTLED:
            return False
        return _is_of_the_page(exc)

    async def _settle_after(self, exc: BaseException | None) -> None:
        if exc is None:
            await self.complete()
        elif _is_of_the_page(exc):
            await self.fail(exc)
        else:
            await self._settler.hand_back(self)

    def __repr__(self) -> str:
        return (
            f"Lease({self.id!r}, lane={self.lane!r}, attempts={self.attempts}, {self.state.value})"
        )
