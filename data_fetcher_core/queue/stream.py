"""Leases one after another: ``async for lease in queue.leases()``."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import anyio

from data_fetcher_core.checking import is_whole_number
from data_fetcher_core.clock import Clock
from data_fetcher_core.errors import ValidationError
from data_fetcher_core.queue.engine import STEP
from data_fetcher_core.queue.entries import check_count
from data_fetcher_core.queue.lease import Lease, LeaseState
from data_fetcher_core.queue.racing import race
from data_fetcher_core.queue.selection import Selection
from data_fetcher_core.showing import shown

if TYPE_CHECKING:
    from data_fetcher_core.queue.kv_store_queue import KVStoreQueue
    from data_fetcher_core.queue.session import Session

Until = Literal["closed", "drained"]
# A fill that takes longer has waited for work.
_BRIEF = 0.05
# Of so many paced lanes it is remembered for longer than needed when the next may begin.
_MOST_STARTS = 1_000


class _Fill:
    """A lease under way; ``found_nothing`` means that there will be no more."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.found_nothing = False


class LeaseStream:
    """An iterator, not a generator: breaking out of the loop drops it, and with it its buffer.

    What it had prefetched is then held by nobody, and the next heartbeat gives it back;
    ``aclose()``, or using the stream as a context manager, does so at once.
    """

    def __init__(
        self, queue: KVStoreQueue, prefetch: int, until: Until, selection: Selection
    ) -> None:
        if not is_whole_number(prefetch, 1):
            raise ValidationError(
                f"prefetch must be a whole number from 1 up, not {shown(prefetch)}"
            )
        if until not in ("closed", "drained"):
            raise ValidationError(f"until must be 'closed' or 'drained', not {shown(until)}")
        self._queue = queue
        self._prefetch = check_count(prefetch, "prefetch")
        self._until = until
        self._selection = selection
        self._buffer: deque[Lease] = deque()
        self._session: Session | None = None
        # When the next of a paced lane may begin.
        self._starts: dict[str, float] = {}
        self._most_starts = _MOST_STARTS
        self._asked_at = -math.inf
        self._readers = 0
        self._given = 0
        self._filled_at = -math.inf
        self._fill_took = 0.0
        self._filling: _Fill | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Lease:
        lease = await self.next()
        if lease is None:
            raise StopAsyncIteration
        return lease

    async def next(self) -> Lease | None:
        """The next lease, ``None`` at the end."""
        self._readers += 1
        try:
            while True:
                session = self._queue.session_at_hand() or await self._queue.open_session()
                lease = await self._next_of(session)
                if lease is not None:
                    return lease
                if not await self._look_for_more(session.client.clock):
                    return None
        finally:
            self._readers -= 1

    async def _next_of(self, session: Session) -> Lease | None:
        clock = session.client.clock
        self._asked_at = now = clock.monotonic()
        if self._session is not session:
            self._belong_to(session)
        await self._prove_after_silence(session)
        while (lease := self._first_due(now)) is not None:
            self._buffer.remove(lease)
            if lease.state is LeaseState.HELD:
                self._note_start(lease, now)
                return lease
        return None

    async def _look_for_more(self, clock: Clock) -> bool:
        """Whether there may be something to begin. What is here keeps nobody from what comes."""
        if not self._buffer:
            return await self._fill_for_all()
        first = min(map(self._due, self._buffer))

        async def fill() -> None:
            if not await self._fill_for_all():
                await anyio.sleep_forever()

        await race(lambda: clock.sleep(max(first - clock.monotonic(), 0.0)), fill)
        return True

    async def _prove_after_silence(self, session: Session) -> None:
        if session.client.is_doubtful(session.client.clock.monotonic()):
            await session.prove()

    @property
    def prefetched(self) -> tuple[Lease, ...]:
        """Taken, and not yet handed on."""
        return tuple(self._buffer)

    def _belong_to(self, session: Session) -> None:
        self._buffer.clear()
        self._session = session
        session.streams.add(self)

    def _first_due(self, now: float) -> Lease | None:
        """The one to begin first, if one may begin now."""
        return next((lease for lease in self._buffer if self._due(lease) <= now), None)

    def is_idle(self, since: float) -> bool:
        """Whether nobody has asked it for anything since then."""
        return not self._readers and self._asked_at < since

    def _note_start(self, lease: Lease, now: float) -> None:
        self._given += 1
        if lease.interval:
            self._starts[lease.lane] = now + lease.interval
            if len(self._starts) > self._most_starts:
                self._forget_starts(now)

    def _forget_starts(self, now: float) -> None:
        self._starts = {lane: at for lane, at in self._starts.items() if at > now}
        self._most_starts = max(_MOST_STARTS, 2 * len(self._starts))

    def _due(self, lease: Lease) -> float:
        return self._starts.get(lease.lane, -math.inf) if lease.interval else -math.inf

    async def _fill_for_all(self) -> bool:
        """One of those who read leases for all of them; whether there is anything to look for."""
        fill = self._filling
        if fill is not None:
            await fill.over.wait()
            return not fill.found_nothing
        self._filling = fill = _Fill()
        try:
            fill.found_nothing = not await self._fill()
        finally:
            self._filling = None
            fill.over.set()
        return not fill.found_nothing

    async def _fill(self) -> bool:
        """Take more leases, for all who read; none means that the queue is shut, or drained."""
        began = self._asked_at
        want = max(self._prefetch, min(self._readers + self._latecomers(began), STEP))
        self._given, self._filled_at = 0, began
        taken = await self._queue.lease_selected(
            want, math.inf, self._selection, until_drained=self._until == "drained"
        )
        if self._session is not None:
            self._fill_took = self._session.client.clock.monotonic() - began
        self._buffer.extend(self._one_of_each_paced_lane(taken))
        return bool(taken)

    def _latecomers(self, now: float) -> int:
        """Who will have come before the answer is back, if leases go as they went of late."""
        since = now - self._filled_at
        return int(self._given * min(self._fill_took, _BRIEF) / since) if since > 0 else 0

    def _one_of_each_paced_lane(self, taken: list[Lease]) -> list[Lease]:
        """Prefetched requests of a paced lane would only wait here, out of everybody's reach."""
        kept: list[Lease] = []
        spare: list[Lease] = []
        paced = {lease.lane for lease in self._buffer if lease.interval}
        for lease in taken:
            (spare if lease.lane in paced else kept).append(lease)
            if lease.interval:
                paced.add(lease.lane)
        if self._session is not None:
            self._session.client.return_leases(spare)
        return kept

    def drop_lane(self, lane: str) -> None:
        """Give back what was prefetched of a lane that is shut now."""
        self._drop([lease for lease in self._buffer if lease.lane == lane])

    def drop_all(self) -> list[asyncio.Task[None]]:
        return self._drop(list(self._buffer))

    def _drop(self, leases: list[Lease]) -> list[asyncio.Task[None]]:
        for lease in leases:
            self._buffer.remove(lease)
        return [] if self._session is None else self._session.client.return_leases(leases)

    async def aclose(self) -> None:
        """Give back what was prefetched, and wait until it is back."""
        for returning in self.drop_all():
            await asyncio.wait([returning])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            await self.aclose()
        else:
            # It may be the store that failed: nobody waits for it.
            self.drop_all()
