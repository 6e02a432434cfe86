"""One consumer: this process as a queue's store knows it, and the batches it sends.

A client lives in one event loop of one process. After a fork, in another loop, or after
``close()``, the queue makes a new one under a new name.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import anyio

from data_fetcher_core.clock import Clock
from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.events import Buried, Subscriber
from data_fetcher_core.queue.base import Serializer
from data_fetcher_core.queue.batching import Batcher
from data_fetcher_core.queue.consumers import here, make_name
from data_fetcher_core.queue.engine import (
    MOST_CHILDREN,
    STEP,
    STEP_BYTES,
    Addition,
    Admitted,
    Grant,
    Granted,
    Insist,
    Move,
    Op,
    QueueEngine,
    Reason,
    Settled,
    Settlement,
    weight_of,
)
from data_fetcher_core.queue.entries import EntryReader, read_item
from data_fetcher_core.queue.forking import birth
from data_fetcher_core.queue.insisting import insist
from data_fetcher_core.queue.lease import Lease, LeaseState
from data_fetcher_core.queue.memory_of_store import StoreMemory
from data_fetcher_core.queue.options import QueueOptions
from data_fetcher_core.queue.records import decode
from data_fetcher_core.queue.selection import Selection
from data_fetcher_core.queue.settlements import Settler
from data_fetcher_core.queue.tasks import OwnedTasks
from data_fetcher_core.queue.tokens import is_of
from data_fetcher_core.queue.turn import Turn

T = TypeVar("T")
_AWAY = 0.05
# Ever new lanes may be asked for; of those that nobody asks for now no more are kept than this.
_MOST_SELECTIONS = 64
# What a settlement without children weighs, so that a batch has the size of a step.
_PLAIN = MOST_CHILDREN // STEP
# Steps of the store that say by the way that we live.
_BEATS_TOO = ("add", "lease", "settle")


class Demand(NamedTuple):
    want: int
    selection: Selection


class Served(NamedTuple):
    """What a lease call got, and what the step that served it said."""

    leases: list[Lease]
    wait: int | None
    suspect: bool
    drained: bool
    # Something was granted that could not be read: who got nothing may have missed his for it.
    unreadable: bool


class Client:
    """Sends what one consumer asks for, in batches, and remembers which leases it handed out."""

    def __init__(
        self,
        engine: QueueEngine,
        *,
        namespace: str,
        options: QueueOptions,
        max_attempts: int,
        serializer: Serializer,
        clock: Clock,
        tell: Subscriber,
    ) -> None:
        self.place = here()
        self.name = make_name(self.place, options.lease_ttl)
        self.birth = birth()
        self.loop = asyncio.get_running_loop()
        self.engine = engine
        self.namespace = namespace
        self.options = options
        self.clock = clock
        self.tell = tell
        self.shut = asyncio.Event()
        self.tasks = OwnedTasks()
        self.batches = OwnedTasks()
        self.reader = EntryReader(serializer, options)
        # Weak: a lease that nobody holds any more is found missing here, and given back.
        self.held: WeakValueDictionary[bytes, Lease] = WeakValueDictionary()
        # Asks the store whether a lease is still ours. Set by the session.
        self.prove: Callable[[Lease], Awaitable[None]]
        # Called when the last lease that was held here is settled. Set by the waiting rooms.
        self.when_idle: Callable[[], None] = _nothing
        self.heard_at = clock.monotonic()
        # After a silence: what was leased before that, and was at work, may be somebody else's.
        self.proved_at = -math.inf
        self.memory = StoreMemory()
        self._answered_at = self.loop.time()
        self._serializer = serializer
        self._numbers: Counter[str] = Counter()
        self._turns: defaultdict[str, Turn] = defaultdict(Turn)
        self._additions = Batcher(
            "enqueue", self._send_additions, self.batches, most=STEP, weigh=_requests_in
        )
        self._settlements = Batcher(
            "settle", self._send_settlements, self.batches, most=MOST_CHILDREN, weigh=_brought_by
        )
        self._demands: dict[Selection, Batcher[Demand, Served]] = {}
        # Settled without anybody who waits for that.
        self._leaving: set[bytes] = set()
        # Set before anything is ended, so that nobody begins what nobody would end.
        self.is_leaving = False
        self.settler = Settler(
            namespace=namespace,
            options=options,
            max_attempts=max_attempts,
            reader=self.reader,
            submit=self._settlements.submit,
            forget=self._forget,
            return_leases=self.return_leases,
            prove=self._prove_if_doubtful,
            is_here=self.is_here,
            tell=tell,
            clock=clock,
        )

    # --- the three verbs that go out in batches ----------------------------------------------

    def add(self, addition: Addition) -> asyncio.Future[Sequence[Admitted]]:
        return self._additions.submit(addition)

    def lease(self, want: int, selection: Selection) -> Awaitable[Served]:
        """What is there now, without waiting; nothing for who takes leave."""
        if self.is_leaving:
            return _nothing_more()
        demands = self._demands.get(selection) or self._demands_for(selection)
        return demands.submit(Demand(want, selection))

    def _demands_for(self, selection: Selection) -> Batcher[Demand, Served]:
        if len(self._demands) >= _MOST_SELECTIONS:
            self._demands = {one: its for one, its in self._demands.items() if its.running}
        demands = self._demands[selection] = Batcher(
            "lease",
            self._send_demands,
            self.batches,
            most=self.engine.leased_together,
            weigh=_wanted,
            abandon=self._abandon,
        )
        return demands

    @property
    def is_leasing(self) -> bool:
        """Whether a batch is on its way that changes which leases are held."""
        leasing = any(batcher.running for batcher in self._demands.values())
        return leasing or self._settlements.running

    def is_about(self, token: bytes) -> bool:
        """Whether its lease is on its way here, or its settlement on its way to the store."""
        is_under_way = self._turns["lease"].is_taken
        return token in self._leaving or (is_under_way and is_of(token, self._numbers["lease"]))

    async def wait_for_work(self, mark: int, timeout: float, lanes: Sequence[bytes] | None) -> None:
        await _patiently(self.engine.wait_for_work(mark, timeout, lanes))

    async def wait_for_room(self, mark: int, timeout: float) -> None:
        await _patiently(self.engine.wait_for_room(mark, timeout))

    async def ask(self, verb: str, ask: Callable[[Op], Awaitable[T]]) -> T:
        """Run a verb under its next operation id, again and again until the store answers."""
        turn, waited = await self._take_turn(verb)
        try:
            return await self._insist(verb, partial(ask, self._next_op(verb)), waited)
        finally:
            turn.give()

    async def walk(self, verb: str, walk: Callable[[Op, Insist], Awaitable[T]]) -> T:
        """Run a verb of many steps under one operation id; each step is asked as in :meth:`ask`."""
        turn, _ = await self._take_turn(verb)
        try:
            return await walk(self._next_op(verb), partial(self._insist, verb))
        finally:
            turn.give()

    def _next_op(self, verb: str) -> Op:
        self._numbers[verb] += 1
        return Op(self.name, self._numbers[verb])

    async def _insist(self, verb: str, ask: Callable[[], Awaitable[T]], waited: float = 0.0) -> T:
        asked_at, mark = self.clock.monotonic(), self.memory.mark()
        patience, bounded = self.options.patience_for(verb)
        answer = await insist(ask, patience, waited, bounded)
        self._answered_at = self.loop.time()
        self.has_heard(asked_at)
        if verb in _BEATS_TOO:
            self.memory.acknowledge(mark)
        return answer

    def is_here(self) -> bool:
        """Whether this process and loop made it; a fork or a new loop needs one of its own."""
        return self.birth is birth() and self.loop is asyncio.get_running_loop()

    def is_doubtful(self, now: float) -> bool:
        """Whether we were silent for so long that our leases may be somebody else's."""
        return now - self.heard_at >= self.options.lease_ttl

    async def _prove_if_doubtful(self, lease: Lease) -> None:
        if self.is_doubtful(self.clock.monotonic()) or lease.leased_on < self.proved_at:
            await self.prove(lease)

    def has_heard(self, asked_at: float) -> None:
        """What the store says is as old as the question, and may be as new as the answer.

        If we were silent for too long until then, it proves nothing.
        """
        if not self.is_doubtful(self.clock.monotonic()):
            self.heard_at = max(self.heard_at, asked_at)

    async def _take_turn(self, verb: str) -> tuple[Turn, float]:
        """One operation of a kind is under way at a time; waiting in silence counts as asking.

        However many are before us, we wait as long as the store answers them.
        """
        turn, began = self._turns[verb], self.loop.time()

        def silence() -> float:
            return self.loop.time() - max(began, self._answered_at)

        if not await turn.take(lambda: self.options.op_timeout - silence()):
            raise StoreUnavailable(
                "calls that were sent before this one are still waiting for the store"
            )
        return turn, silence()

    async def _send_additions(self, additions: Sequence[Addition]) -> Sequence[Sequence[Admitted]]:
        return await self.ask("add", lambda op: self.engine.add(op, additions))

    async def _send_settlements(self, settlements: Sequence[Settlement]) -> Sequence[Settled]:
        return await self.ask("settle", lambda op: self.engine.settle(op, settlements))

    async def _send_demands(self, demands: Sequence[Demand]) -> Sequence[Served]:
        want = sum(demand.want for demand in demands)
        lanes, steal = demands[0].selection
        granted = await self.ask(
            "lease", lambda op: self.engine.lease(op, min(want, STEP), lanes, steal)
        )
        return self._serve(granted, demands)

    def _serve(self, granted: Granted, demands: Sequence[Demand]) -> list[Served]:
        """Each caller gets what it would have got had they asked one after another."""
        held = [self._hold(grant, granted.now / 1e6) for grant in granted.grants]
        unreadable = any(lease is None for lease in held)
        leases = iter([lease for lease in held if lease is not None])
        return [
            Served(
                list(itertools.islice(leases, demand.want)),
                granted.wait,
                granted.suspect,
                granted.drained,
                unreadable,
            )
            for demand in demands
        ]

    # --- the register of leases --------------------------------------------------------------

    def _hold(self, grant: Grant, now: float) -> Lease | None:
        """The lease for a grant; a request that cannot be read is buried instead."""
        try:
            record = decode(grant.record)
            item = read_item(record, self._serializer)
            lease = Lease(grant, record, item, self.settler, now)
        except Exception as error:  # noqa: BLE001 - whatever a serializer raises, nobody is blocked
            self._bury_unreadable(grant, error)
            return None
        self.held[grant.token] = lease
        return lease

    def _forget(self, lease: Lease) -> None:
        self.held.pop(lease.token, None)
        if not self.held:
            self.when_idle()

    def _bury_unreadable(self, grant: Grant, error: Exception) -> None:
        detail = f"{type(error).__name__}: {error}"[:500]
        self._settle_soon(
            Settlement(
                grant.token,
                Move.BURY,
                reason=Reason.CORRUPT,
                detail=detail.encode(errors="replace"),
            )
        )
        self.tell(Buried(self.namespace, grant.token.hex(), "corrupt", detail))

    def _abandon(self, _: Demand, served: Served) -> None:
        """The caller was cancelled after its batch was sent: nothing started, nothing spent."""
        self.return_leases(served.leases)

    def return_leases(self, leases: Sequence[Lease]) -> list[asyncio.Task[None]]:
        """Give leases back, the last one first, whether or not anybody waits for it."""
        held = [lease for lease in reversed(leases) if lease.state is LeaseState.HELD]
        for lease in held:
            lease.state = LeaseState.SETTLED
            self._forget(lease)
        return [self._settle_soon(Settlement(lease.token, Move.GIVE_BACK)) for lease in held]

    def _settle_soon(self, settlement: Settlement) -> asyncio.Task[None]:
        self._leaving.add(settlement.token)
        task = self.batches.start(_quietly(self._settlements.submit(settlement)), "give back")
        task.add_done_callback(lambda _: self._leaving.discard(settlement.token))
        return task

    async def stop(self) -> None:
        """Begin nothing more, let what is on its way arrive, and let go of what is held."""
        self.is_leaving = True
        await self.tasks.cancel()
        await self.batches.finish()
        for lease in list(self.held.values()):
            lease.state = LeaseState.LOST
        self.held.clear()

    async def leave(self) -> None:
        """What was held goes back, and the consumer is forgotten."""
        while (await insist(lambda: self.engine.leave(self.name), self.options.op_timeout)).more:
            pass


def _nothing() -> None:
    """Nobody wants to know."""


async def _nothing_more() -> Served:
    return Served([], wait=None, suspect=False, drained=False, unreadable=False)


async def _patiently(waiting: Awaitable[None]) -> None:
    """Who waits does not mind that the store is away; who asks next will insist."""
    try:
        await waiting
    except StoreUnavailable:
        await anyio.sleep(_AWAY)


async def _quietly(settling: Awaitable[Any]) -> None:
    """A give-back that fails is repeated by the heartbeat: the lease is on nobody's register."""
    with suppress(Exception):
        await settling


def _requests_in(addition: Addition) -> int:
    return weight_of(addition.requests, STEP) or 1


def _brought_by(settlement: Settlement) -> int:
    """Children, or bytes: what a page is, and what is told of it, may be large, too."""
    size = len(settlement.head) + len(settlement.detail) + len(settlement.result or b"")
    children = settlement.addition.requests
    weight = max(weight_of(children, MOST_CHILDREN), _PLAIN) if children else _PLAIN
    return weight + size * MOST_CHILDREN // STEP_BYTES


def _wanted(demand: Demand) -> int:
    return demand.want
