"""The heartbeat of a consumer, and what it does for the others: take up what the dead held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.events import (
    ConsumerReaped,
    HeartbeatMissed,
    LeasesLost,
    LeasesReturned,
    StepsForgotten,
)
from data_fetcher_core.queue.client import Client
from data_fetcher_core.queue.consumers import Watchlist, is_surely_dead
from data_fetcher_core.queue.engine import Beat, Move, Outcome, Settlement
from data_fetcher_core.queue.insisting import insist
from data_fetcher_core.queue.lease import Lease, LeaseState
from data_fetcher_core.queue.options import microseconds
from data_fetcher_core.queue.standstill import watched

_BEATS_PER_TTL = 6
# Counts that agree may hide that one is missing here and another there: look this often anyway.
_BEATS_PER_LOOK = 6
_LONGEST_INTERVAL = 3.0


class Heart:
    """Beats while this client holds leases or waits for some."""

    def __init__(
        self, client: Client, is_needed: Callable[[], bool], tidy: Callable[[], None]
    ) -> None:
        self._client = client
        self._is_needed = is_needed
        self._tidy = tidy
        self._watchlist = Watchlist(client.loop.time)
        self._beating = False
        self._beats = 0
        # Whether the store has said that we hold nothing, and nothing went wrong since then.
        self._is_empty_handed = True
        ttl = client.options.lease_ttl
        self.interval = min(ttl / _BEATS_PER_TTL, _LONGEST_INTERVAL)

    def start(self) -> None:
        if not self._beating:
            self._beating = True
            self._client.tasks.start(self._run(), "heartbeat")

    async def _run(self) -> None:
        try:
            with watched(self._client.loop, self._client.options.lease_ttl):
                await self._beat_while_needed()
        finally:
            self._beating = False

    async def _beat_while_needed(self) -> None:
        while True:
            await self._client.clock.sleep(self.interval)
            self._tidy()
            await self._survive_beat()
            if not self._is_needed() and self._is_empty_handed:
                return

    async def _survive_beat(self) -> None:
        self._is_empty_handed = False
        try:
            await self.beat()
        except Exception as error:  # noqa: BLE001 - a heart that stops lets go of everything
            # Also where we are refused: the password may be right again before the lease is over.
            self._client.tell(HeartbeatMissed(self._client.namespace, str(error)))

    async def beat(self) -> None:
        """Say that we live; take up what the dead held; drop what nobody here holds."""
        beat = await self._hear()
        await self.take_up(self._dead(beat.consumers), beat.consumers)
        await self._compare(beat)
        await self._purge_old()
        self._is_empty_handed = not beat.held

    async def _hear(self) -> Beat:
        """What the store says. While it did not answer, nobody could be heard: no silence."""
        client, asked_at = self._client, self._client.clock.monotonic()
        mark = client.memory.mark()
        try:
            beat = await self._ask_beat()
        except StoreUnavailable:
            self._watchlist.forget()
            raise
        self._watchlist.excuse(client.clock.monotonic() - asked_at)
        client.has_heard(asked_at)
        forgotten = client.memory.compare(mark, beat.consumers.get(client.name, 0))
        if forgotten and not client.is_doubtful(asked_at):
            client.tell(StepsForgotten(client.namespace, forgotten))
        return beat

    async def _ask_beat(self) -> Beat:
        """Those who hold leases must hear of a silence while they still have them."""
        client, options = self._client, self._client.options
        bound = min(options.op_timeout, options.lease_ttl / 2)
        return await insist(lambda: client.engine.beat(client.name), bound)

    def _dead(self, beats: Mapping[bytes, int]) -> list[bytes]:
        client = self._client
        now, ttl = client.clock.monotonic(), client.options.lease_ttl
        silent = self._watchlist.silent(beats, now, ttl)
        dead = [name for name in beats if name in silent or is_surely_dead(name, client.place)]
        return [name for name in dead if name != client.name]

    async def take_up(self, dead: list[bytes], beats: Mapping[bytes, int]) -> None:
        for name in dead:
            await self._take_up_all_of(name, beats[name])

    async def _take_up_all_of(self, name: bytes, beat: int) -> None:
        client, taken, more = self._client, 0, True
        try:
            while more:
                taken_now, more = await insist(
                    lambda: client.engine.reap(name, beat), client.options.op_timeout
                )
                taken += taken_now
        finally:
            if taken:
                client.tell(ConsumerReaped(client.namespace, name.decode(errors="replace"), taken))

    async def _compare(self, beat: Beat) -> None:
        """Where the store's count differs from ours, find out which, and mend it."""
        here = len(self._client.held)
        self._beats += 1
        if beat.held != here or (here and self._beats % _BEATS_PER_LOOK == 0):
            await self.reconcile()

    async def prove(self, leases: Iterable[Lease]) -> None:
        """Own up to those that are lost; they are not being settled.

        A beat first: who has judged our silence could take them just after they were proved.
        """
        tokens = {lease.token for lease in leases}
        await self._ask_beat()
        asked_at = self._client.clock.monotonic()
        self._lose(tokens - await self._ask_held())
        self._client.proved_at = asked_at
        self._client.heard_at = max(self._client.heard_at, asked_at)

    async def _ask_held(self) -> set[bytes]:
        client = self._client
        return set(await insist(lambda: client.engine.held(client.name), client.options.op_timeout))

    async def reconcile(self) -> None:
        """Give back what the store thinks we hold and nobody here does; own up to what is lost.

        What is being settled meanwhile is no loss, so that is looked for in a calm moment. What
        nobody holds is known by its token, in the busiest: only a lease that is on its way here
        has one that is not known yet.
        """
        client = self._client
        before = set(client.held)
        stored = await self._ask_held()
        # Whose settlement was answered in this very moment may not have heard of it.
        await asyncio.sleep(0)
        here = set(client.held)
        if not client.is_leasing:
            self._lose((here & before) - stored)
        await self._return([t for t in stored - here - before if not client.is_about(t)])

    async def _return(self, tokens: Sequence[bytes]) -> None:
        client = self._client
        settlements = [Settlement(token, Move.GIVE_BACK) for token in sorted(tokens, reverse=True)]
        if settlements:
            settled = await client.ask("settle", lambda op: client.engine.settle(op, settlements))
            if returned := sum(one.outcome is Outcome.DONE for one in settled):
                client.tell(LeasesReturned(client.namespace, returned))

    def _lose(self, tokens: set[bytes]) -> None:
        client = self._client
        lost = [lease for token in tokens if (lease := client.held.pop(token, None)) is not None]
        for lease in lost:
            lease.state = LeaseState.LOST
        if lost:
            client.tell(LeasesLost(client.namespace, tuple(lease.id for lease in lost)))

    async def _purge_old(self) -> None:
        client, retention = self._client, self._client.options.dead_retention
        if retention:
            older_than = microseconds(retention)
            await client.ask("purge", lambda op: client.engine.purge(op, older_than))
