"""Waiting for work without asking for it: one waiter for all callers who wait alike."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from data_fetcher_core.queue.batching import copy_error
from data_fetcher_core.queue.client import Client, Served
from data_fetcher_core.queue.fasting import Fasting
from data_fetcher_core.queue.lease import Lease
from data_fetcher_core.queue.racing import race
from data_fetcher_core.queue.selection import Selection

# A marker may be lost with a connection; nobody waits longer than this without asking again.
_LONGEST_WAIT = 10.0
# That the queue is drained is passed on; who passes it on may die, so others look this often.
_DRAINED_WAIT = 2.0
# While a request must be leased alone, ask again when our own leases are settled: this often, for
# that may happen in the instant before somebody sits down to wait.
_SUSPECT_WAIT = 1.0
_NOTHING_NOW = Served([], wait=None, suspect=True, drained=False, unreadable=False)


@dataclass(eq=False)
class _Waiter:
    want: int
    until_drained: bool
    got: asyncio.Future[list[Lease]]


@dataclass
class _Room:
    """Those who wait for the same lanes."""

    waiters: list[_Waiter] = field(default_factory=list)
    nap: asyncio.Timeout | None = None
    occupied: bool = False
    # Taken before the lease that found nothing: what came since then is not slept through.
    mark: int = 0
    until: float = math.inf
    # Whether a request that must be leased alone keeps others from being leased, or waits itself.
    suspect: bool = False

    def poke(self) -> None:
        """Whoever sleeps here for the others looks again now."""
        if self.nap is not None and not self.nap.expired():
            self.nap.reschedule(-math.inf)


class WaitingRooms:
    """Lease with patience."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._rooms: dict[Selection, _Room] = {}
        self._fasting = Fasting()
        client.when_idle = self._wake_the_kept

    @property
    def closed(self) -> bool:
        return self._client.shut.is_set()

    @property
    def anybody(self) -> bool:
        return any(room.waiters for room in self._rooms.values())

    def wake_all(self) -> None:
        """Let everybody look again, for instance because the queue is shut down."""
        for room in self._rooms.values():
            room.poke()

    def dismiss_all(self) -> None:
        """Whoever sits here goes without, also where nobody has begun to keep the room."""
        for room in self._rooms.values():
            _dismiss(room)

    def _wake_the_kept(self) -> None:
        """Nothing is held here any more: what had to be leased alone, or beside it, can be."""
        for room in self._rooms.values():
            if room.suspect:
                room.poke()

    async def lease(
        self, want: int, wait: float, selection: Selection, *, until_drained: bool = False
    ) -> list[Lease]:
        """Up to ``want`` leases; none only after ``wait`` seconds, at shutdown or when drained."""
        now = self._client.clock.monotonic
        deadline = now() + wait
        while True:
            mark, asked_at = self._client.engine.watch(), now()
            served = await self._ask(want, selection, patient=wait > 0)
            if served.leases:
                return served.leases
            if served.unreadable or served.wait == 0:
                # Something was in the way, and is gone.
                continue
            left = deadline - now()
            if left <= 0 or self.closed or (until_drained and served.drained):
                return []
            pause = _pause(served, until_drained=until_drained)
            if pause > 0 and mark == self._client.engine.watch():
                room = self._rooms.setdefault(selection, _Room())
                room.suspect = served.suspect
                self._attend(room, selection, asked_at + pause, mark)
                return await self._wait(room, want, left, until_drained=until_drained)
            # Otherwise something came meanwhile, or is due now: look again.

    async def _ask(self, want: int, selection: Selection, *, patient: bool) -> Served:
        """Lease now, unless it is time to settle first; who does not wait is not kept waiting."""
        client, now = self._client, self._client.clock.monotonic
        if patient and self._fasting.is_on(now(), holds_any=bool(client.held)):
            return _NOTHING_NOW
        held_any = bool(client.held)
        served = await client.lease(want, selection)
        self._fasting.heard(now(), passed_over=served.suspect, held_any=held_any)
        return served

    async def _wait(
        self, room: _Room, want: int, left: float, *, until_drained: bool
    ) -> list[Lease]:
        async with self._seat(room, want, until_drained=until_drained) as waiter:
            await self._until_served(waiter, left)
            return _leases_of(waiter)

    @asynccontextmanager
    async def _seat(self, room: _Room, want: int, *, until_drained: bool) -> AsyncIterator[_Waiter]:
        got: asyncio.Future[list[Lease]] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(want, until_drained, got)
        room.waiters.append(waiter)
        try:
            yield waiter
        except BaseException:
            if _has_got(waiter):
                self._client.return_leases(waiter.got.result())
            raise
        finally:
            if waiter in room.waiters:
                room.waiters.remove(waiter)

    async def _until_served(self, waiter: _Waiter, left: float) -> None:
        async def served() -> None:
            await asyncio.wait([waiter.got])

        if left == math.inf:
            await served()
        else:
            await race(served, lambda: self._client.clock.sleep(left))

    def _attend(self, room: _Room, selection: Selection, until: float, mark: int) -> None:
        if not room.occupied:
            room.occupied, room.until, room.mark = True, until, mark
            self._client.tasks.start(self._keep(room, selection), "wait for work")
        elif until < room.until:
            room.until = until
            room.poke()

    async def _keep(self, room: _Room, selection: Selection) -> None:
        """Wait for all who sit here, lease for all of them at once, share out, again."""
        try:
            while room.waiters:
                await self._sleep(room, selection)
                await self._serve(room, selection)
        except Exception as error:  # noqa: BLE001 - it is theirs: raised to each who waits here
            for waiter in room.waiters:
                if not waiter.got.done():
                    waiter.got.set_exception(error)
        finally:
            room.occupied = False
            _dismiss(room)
            if self._rooms.get(selection) is room:
                del self._rooms[selection]

    async def _sleep(self, room: _Room, selection: Selection) -> None:
        left = min(room.until - self._client.clock.monotonic(), _LONGEST_WAIT)
        if left <= 0 or self.closed:
            return
        lanes = None if selection.lanes is None else selection.lanes + selection.steal
        # No task of its own for the waiting: what ends it is on the way to a lease.
        try:
            async with asyncio.timeout(None) as room.nap:
                await self._client.wait_for_work(room.mark, left, lanes)
        except TimeoutError:
            pass
        finally:
            room.nap = None

    async def _serve(self, room: _Room, selection: Selection) -> None:
        # With nobody left the lease of nothing still passes the wake-up on to other processes.
        want = sum(waiter.want for waiter in room.waiters)
        room.mark, asked_at = self._client.engine.watch(), self._client.clock.monotonic()
        served = await self._ask(want, selection, patient=True)
        ending = any(waiter.until_drained for waiter in room.waiters)
        # From before the lease: what it says is at least that old.
        room.until = asked_at + _pause(served, until_drained=ending)
        room.suspect = served.suspect
        leases = served.leases
        for waiter in list(room.waiters):
            mine, leases = leases[: waiter.want], leases[waiter.want :]
            if mine or self.closed or (waiter.until_drained and served.drained):
                waiter.got.set_result(mine)
                room.waiters.remove(waiter)
        self._client.return_leases(leases)
        if ending and served.drained:
            # The signal was for one; the lease of nothing passes it on to the next process.
            await self._client.lease(0, selection)


def _has_got(waiter: _Waiter) -> bool:
    got = waiter.got
    return got.done() and not got.cancelled() and got.exception() is None


def _leases_of(waiter: _Waiter) -> list[Lease]:
    """What it has got by now, or the error that ended its waiting."""
    if not waiter.got.done():
        return []
    error = waiter.got.exception()
    if isinstance(error, Exception):
        # One object for all, kept by each, would keep each caller's leases by its traceback.
        raise copy_error(error)
    return waiter.got.result()


def _dismiss(room: _Room) -> None:
    """Nobody keeps the room any more: who still sits there goes without."""
    for waiter in room.waiters:
        if not waiter.got.done():
            waiter.got.set_result([])
    room.waiters.clear()


def _pause(served: Served, *, until_drained: bool) -> float:
    """How long until it is worth asking again, in seconds."""
    longest = _SUSPECT_WAIT if served.suspect else _DRAINED_WAIT if until_drained else _LONGEST_WAIT
    return longest if served.wait is None else min(served.wait / 1e6, longest)
