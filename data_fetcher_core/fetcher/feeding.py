"""Locators feed the queue, a turn at a time."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from anyio.abc import TaskGroup

from data_fetcher_core.core import Entry, FetchRunContext, Locator
from data_fetcher_core.deadlines import within
from data_fetcher_core.errors import FetchError, ValidationError
from data_fetcher_core.events import Fed, Subscriber
from data_fetcher_core.fetcher.breakers import Breakers
from data_fetcher_core.fetcher.early import Early
from data_fetcher_core.fetcher.entering import as_entries
from data_fetcher_core.fetcher.pausing import Pauses
from data_fetcher_core.fetcher.refilling import Refill
from data_fetcher_core.fetcher.settling import Failures
from data_fetcher_core.fetcher.states import checkpoint_of, first_state
from data_fetcher_core.fetcher.turns import (
    Standing,
    another_turn,
    checkpoint_name,
    first_turn,
    locator_of,
    turn_lane,
)
from data_fetcher_core.queue import KVStoreQueue, Lease
from data_fetcher_core.showing import shown


class Feeder:
    """Takes the turns that this process has leased."""

    def __init__(
        self,
        queue: KVStoreQueue,
        locators: Mapping[str, Locator],
        context: FetchRunContext,
        *,
        refill: Refill,
        failures: Failures,
        breakers: Breakers,
        pauses: Pauses,
        early: Early,
        timeout: float,
        namespace: str,
        tell: Subscriber,
    ) -> None:
        self._early = early
        self._queue = queue
        self._locators = locators
        self._context = context
        self._refill = refill
        self._failures = failures
        self._breakers = breakers
        self._pauses = pauses
        self._timeout = timeout
        self._namespace = namespace
        self._tell = tell
        # How many turns a locator object here has behind it; others may have gone on elsewhere.
        self._turns: dict[str, int] = {}
        self._first_states = {name: first_state(one) for name, one in locators.items()}

    async def register(self) -> None:
        """Give every locator its turn, if nobody did before."""
        for name in self._locators:
            await self._queue.pace(turn_lane(name), interval=0.0, limit=1)
        await self._early.let_in([first_turn(name) for name in self._locators])

    async def revive(self) -> bool:
        """Bring back the turns of locators that have more but no turn; whether there are any.

        Asked when nothing is left to do. A dead letter of a turn can be purged; then it is the
        locator's checkpoint that knows there is more.
        """
        lacking = {name for name in self._locators if not (await self._standing(name)).exhausted}
        if not lacking or not await self._queue.admits_more():
            return False
        async for letter in self._queue.dead_letters():
            lacking.discard(letter.item and locator_of(letter.item))
        return bool(await self._early.let_in([another_turn(name) for name in sorted(lacking)]))

    def take(self, lease: Lease, name: str, group: TaskGroup) -> None:
        """A turn does not keep a worker from its work."""
        group.start_soon(self._take, lease, name)

    async def _take(self, lease: Lease, name: str) -> None:
        async with lease:
            if name not in self._locators:
                await lease.bury(f"this recipe has no locator {name!r}")
            elif not await self._queue.admits_more():
                # It has more, which is asked for once the bound is raised.
                await self._pauses.insist(lease.drop, needs_room=False)
            elif await self._refill.has_room():
                self._refill.unpark(lease.lane)
                await self._take_turn(lease, name)
            else:
                await self._pauses.insist(lambda: self._refill.park(lease.lane), needs_room=False)
                await self._pauses.insist(lease.give_back, needs_room=False)

    async def _take_turn(self, lease: Lease, name: str) -> None:
        standing = await self._standing(name)
        if standing.exhausted:
            await self._pauses.insist(lease.drop, needs_room=False)
            return
        # Unlike a page, a turn has asked the store twice since it was handed on.
        await self._pauses.insist(lease.confirm, needs_room=False)
        try:
            self._restore(name, standing)
            found, state = await self._ask(self._locators[name])
            entries = await as_entries(found)
        except Exception as error:  # noqa: BLE001 - whatever a locator raises, its turn is settled
            self._turns.pop(name, None)
            await self._failures.settle(lease, error)
            return
        self._turns.pop(name, None)
        after = Standing(standing.turn + 1, exhausted=not entries, state=state)
        new = await self._settle(lease, name, entries, after)
        self._turns[name] = after.turn
        if lease.attempts:
            await self._breakers.note_good(lease)
        self._tell(Fed(self._namespace, name, len(entries), new))

    async def _standing(self, name: str) -> Standing:
        saved = await self._queue.checkpoint(checkpoint_name(name))
        return Standing() if saved is None else Standing(**saved)

    def _restore(self, name: str, standing: Standing) -> None:
        """Bring the object here to where the last turn left the locator, wherever that was."""
        if self._turns.get(name) == standing.turn:
            return
        locator = self._locators[name]
        state = standing.state if standing.turn else self._first_states[name]
        restore = getattr(type(locator), "restore", None)
        if state is not None and callable(restore) and state != checkpoint_of(locator):
            restore(locator, state)

    async def _ask(self, locator: Locator) -> tuple[list[Any], Any]:
        """What it gives and where it then stands, with nothing in between."""
        try:
            with within(self._timeout):
                found = await locator.get_next_urls(self._context)
        except TimeoutError:
            raise FetchError(f"a locator took longer than {self._timeout:g} s") from None
        state = checkpoint_of(locator)
        return [] if found is None else _listed(found), state

    async def _settle(
        self, lease: Lease, name: str, entries: list[Entry], standing: Standing
    ) -> int:
        """All that a turn gave and where the locator stands: one step."""
        saved = {checkpoint_name(name): standing.to_checkpoint()}
        if standing.exhausted:
            await self._pauses.insist(lambda: lease.drop(saved), needs_room=False)
            return 0
        last, new = await self._early.bring(entries)
        return new + await self._pauses.insist(lambda: lease.progress(last, saved))


def _listed(found: Any) -> list[Any]:
    if isinstance(found, str | bytes) or inspect.isawaitable(found):
        raise ValidationError(f"get_next_urls gives a list of requests, not {shown(found)}")
    return list(found)
