"""The breakers of a run: what processes saw of a host, shared through the store."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from data_fetcher_core.errors import StoreFull
from data_fetcher_core.events import LaneRecovered, LaneShut, Subscriber
from data_fetcher_core.fetcher.breaker import Breaker, BreakerOptions
from data_fetcher_core.fetcher.turns import is_turn_lane
from data_fetcher_core.queue import KVStoreQueue, Lease

# What goes well is told to the store only together with a failure. So it is remembered here, and
# what was read; of so many hosts.
_MOST_LANES = 10_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Known:
    """The record of a lane and what it says; the limit of the lane when it was read, and when."""

    raw: Any
    breaker: Breaker
    limit: int
    read_at: float


class Breakers:
    """Notes what became of requests, and shuts or recovers their lanes."""

    def __init__(
        self, queue: KVStoreQueue, namespace: str, options: BreakerOptions, tell: Subscriber
    ) -> None:
        self._queue = queue
        self._namespace = namespace
        self._options = options
        self._tell = tell
        self._known: dict[str, _Known] = {}
        self._good: dict[str, Counter[int]] = {}

    async def note_good(self, lease: Lease) -> None:
        """Costs nothing while the host is well."""
        if self._may_be_open(lease):
            await self._change(lease, good=True)
            return
        counts = self._good.get(lease.lane)
        if counts is None:
            counts = Counter()
            _keep(self._good, lease.lane, counts)
        counts[self._options.bucket(lease.now)] += 1

    async def note_bad(self, lease: Lease) -> None:
        if self._options.failures:
            await self._change(lease, good=False)

    def _may_be_open(self, lease: Lease) -> bool:
        """Whether this success matters to others: it may end a streak, or close a breaker.

        That another process opened it shows in the limit of the lane.
        """
        known = self._known.get(lease.lane)
        if known is None or self._is_stale(known, lease):
            self._known.pop(lease.lane, None)
            return lease.lane_limit == self._options.probes
        return not known.breaker.is_closed or known.breaker.streak > 0

    def _is_stale(self, known: _Known, lease: Lease) -> bool:
        """A host that gets as many as there are probes in any case is looked at now and then."""
        is_old = lease.now - known.read_at >= self._options.cooldown
        return lease.lane_limit != known.limit or (is_old and known.limit == self._options.probes)

    async def _change(self, lease: Lease, *, good: bool) -> None:
        """A store without room forgets this one; what it knows of the host stays as it was."""
        with suppress(StoreFull):
            await self._note(lease, good=good)

    async def _note(self, lease: Lease, *, good: bool) -> None:
        while True:
            known = await self._read(lease)
            before = known.breaker
            told = before.with_good(dict(self._good.get(lease.lane, {})))
            see = told.seen_good if good else told.seen_bad
            after = see(lease.leased_at, lease.now, self._options)
            if after is told:
                await self._hold_shut(lease, before)
                return
            if await self._write(lease.lane, known, after):
                break
        self._good.pop(lease.lane, None)
        await self._act(lease, before, after)

    async def _read(self, lease: Lease) -> _Known:
        known = self._known.get(lease.lane)
        if known is None:
            raw = await self._queue.checkpoint(_name(lease.lane))
            breaker = Breaker() if raw is None else Breaker.from_state(raw[1:])
            known = _Known(raw, breaker, lease.lane_limit, lease.now)
            _keep(self._known, lease.lane, known)
            await self._lift_limit(lease, breaker)
        return known

    async def _write(self, lane: str, known: _Known, after: Breaker) -> bool:
        """The random part makes two records differ that say the same: one of two swaps wins."""
        new = [os.urandom(6).hex(), *after.to_state()]
        swapped = await self._queue.swap_checkpoint(_name(lane), known.raw, new)
        if swapped:
            _keep(self._known, lane, replace(known, raw=new, breaker=after))
        else:
            self._known.pop(lane, None)
        return swapped

    async def _act(self, lease: Lease, before: Breaker, after: Breaker) -> None:
        if after.is_closed and not before.is_closed:
            await self._limit(lease.lane, None)
            self._tell(LaneRecovered(self._namespace, lease.lane))
        elif after.open_until != before.open_until:
            await self._shut(lease, after)

    async def _shut(self, lease: Lease, breaker: Breaker) -> None:
        duration = max(0.0, breaker.open_until - lease.now)
        await self._limit(lease.lane, self._options.probes)
        await self._queue.shut(lease.lane, duration)
        self._tell(LaneShut(self._namespace, lease.lane, duration, "it fails too often"))

    async def _lift_limit(self, lease: Lease, breaker: Breaker) -> None:
        """Give a lane its places back, if who closed its breaker died before doing so."""
        if breaker.is_closed and lease.lane_limit == self._options.probes:
            await self._limit(lease.lane, None)

    async def _limit(self, lane: str, most: int | None) -> None:
        """A locator has one turn at a time, whether or not its provider is well."""
        if not is_turn_lane(lane):
            await self._queue.limit(lane, most)

    async def _hold_shut(self, lease: Lease, breaker: Breaker) -> None:
        """Shut a lane after all, if who opened its breaker died before doing so."""
        if breaker.opened_at < lease.leased_at < breaker.open_until > lease.now:
            await self._shut(lease, breaker)


def _keep(kept: dict[str, T], lane: str, what: T) -> None:
    """All of it can be read or gathered again."""
    if len(kept) >= _MOST_LANES:
        kept.clear()
    kept[lane] = what


def _name(lane: str) -> str:
    return f"breaker:{lane}"
