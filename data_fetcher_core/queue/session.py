"""A queue in use: one client with its heart and its waiting rooms."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from weakref import WeakSet

from data_fetcher_core.queue.client import Client
from data_fetcher_core.queue.lease import Lease, LeaseState
from data_fetcher_core.queue.selection import Selection
from data_fetcher_core.queue.stream import LeaseStream
from data_fetcher_core.queue.sweeping import Heart
from data_fetcher_core.queue.together import Together
from data_fetcher_core.queue.waiting import WaitingRooms


class Session:
    """What a queue has while it is open in one event loop of one process."""

    def __init__(self, client: Client) -> None:
        self.client = client
        client.prove = self.prove
        self.rooms = WaitingRooms(client)
        self.streams: WeakSet[LeaseStream] = WeakSet()
        self._heart = Heart(client, self._is_alive, self._drop_idle)
        self._greeted = False
        self._greeting: Together[None] = Together()

    async def lease(
        self, want: int, wait: float, selection: Selection, *, until_drained: bool
    ) -> list[Lease]:
        if not self._greeted:
            await self._greeting.run(self._greet)
        if self.client.is_leaving:
            return []
        self._heart.start()
        leases = await self.rooms.lease(want, wait, selection, until_drained=until_drained)
        # What was granted to who takes leave goes back with the rest.
        return [] if self.client.is_leaving else leases

    async def _greet(self) -> None:
        """What a killed process of this host held is taken up at once, not a lease_ttl later."""
        await self._see_through(self._heart.beat)
        self._greeted = True

    async def sweep(self) -> None:
        await self._see_through(self._heart.beat)

    async def prove(self, *leases: Lease) -> None:
        """Ask the store which are still ours, before one is handed on; of every stream at once."""
        if self.client.is_leaving:
            # They go back with the rest.
            for lease in leases:
                lease.state = LeaseState.LOST
            return
        prefetched = (lease for stream in self.streams for lease in stream.prefetched)
        await self._see_through(partial(self._heart.prove, [*leases, *prefetched]))

    async def _see_through(self, speak: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Who closes waits for it: a consumer that beats after it has left is there again."""
        if not self.client.is_leaving:
            await self.client.batches.start(speak(), "beat")

    def _is_alive(self) -> bool:
        return bool(self.client.held) or self.client.is_leasing or self.rooms.anybody

    def _drop_idle(self) -> None:
        """A stream that nobody reads keeps nothing from the others."""
        idle_since = self.client.clock.monotonic() - self.client.options.lease_ttl
        for stream in list(self.streams):
            if stream.is_idle(idle_since):
                stream.drop_all()

    def drop_lane(self, lane: str) -> None:
        for stream in list(self.streams):
            stream.drop_lane(lane)

    async def stop(self) -> None:
        self.shut()
        self.rooms.dismiss_all()
        await self.client.stop()

    async def close(self) -> None:
        await self.stop()
        await self.client.leave()

    def shut(self) -> None:
        """Let nobody wait any longer."""
        self.client.shut.set()
        self.rooms.wake_all()
