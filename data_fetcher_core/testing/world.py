"""One store with its consumers, as the machines drive it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from data_fetcher_core.core import Entry, QueueStats
from data_fetcher_core.errors import LeaseLost, QueueFull
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.queue.client import Client
from data_fetcher_core.queue.engine import Addition, Move, Op, Outcome, Settled, Settlement
from data_fetcher_core.queue.entries import Defaults
from data_fetcher_core.queue.insisting import insist
from data_fetcher_core.queue.kv_store_queue import KVStoreQueue
from data_fetcher_core.queue.lease import Lease
from data_fetcher_core.queue.options import QueueOptions
from data_fetcher_core.queue.serializers import JSONSerializer
from data_fetcher_core.testing.clock import ManualClock
from data_fetcher_core.testing.faults import Fault, make_faulty

MadeStore = KeyValueStore | tuple[KeyValueStore, Callable[[], KeyValueStore]]
MakeQueue = Callable[..., KVStoreQueue]
_NAMESPACE = "fetch:machine"


class World:
    """A store that loses messages on demand, and one queue object for each consumer."""

    def __init__(
        self,
        made: MadeStore,
        options: QueueOptions,
        clock: ManualClock,
        consumers: Sequence[str],
        make_queue: MakeQueue = KVStoreQueue,
    ) -> None:
        store, reopen = made if isinstance(made, tuple) else (made, None)
        self._inner: KeyValueStore = store
        self._reopen: Callable[[], KeyValueStore] = reopen or (lambda: store)
        self._store = make_faulty(self._inner)
        self._options, self._clock, self._make_queue = options, clock, make_queue
        self._queues = {who: self._new_queue() for who in consumers}
        # By consumer and the number that the delivery has in the model.
        self._held: dict[tuple[str, int], Lease] = {}
        self._spent: list[bytes] = []

    def __repr__(self) -> str:
        return f"world of {self._inner!r}"

    def _new_queue(self) -> KVStoreQueue:
        return self._make_queue(
            self._store,
            _NAMESPACE,
            JSONSerializer(),
            options=self._options,
            clock=self._clock,
            subscriber=lambda _: None,
        )

    def queue(self, who: str = "one") -> KVStoreQueue:
        return self._queues[who]

    def plan(self, fault: Fault, call: int) -> None:
        self._store.faults.plan(fault, self._store.verb, call)

    async def enqueue(
        self, who: str, entries: Sequence[Entry], checkpoint: Mapping[str, Any] | None
    ) -> tuple[int, list[str]] | tuple[str, int]:
        try:
            enqueued = await self.queue(who).enqueue(entries, checkpoint=checkpoint)
        except QueueFull as error:
            return "full", error.accepted
        return int(enqueued), list(enqueued.ids)

    async def lease(
        self,
        who: str,
        want: int,
        lanes: list[str] | None,
        steal: list[str],
        numbers: Sequence[int],
    ) -> list[tuple[Any, ...]]:
        leases = await self.queue(who).lease(want, lanes=lanes, steal=steal)
        self._held |= {(who, n): lease for n, lease in zip(numbers, leases, strict=False)}
        return [(x.id, x.item, x.lane, x.priority.value, x.attempts, x.deaths) for x in leases]

    def _take(self, who: str, delivery: int) -> Lease:
        lease = self._held.pop((who, delivery))
        self._spent.append(lease.token)
        return lease

    async def complete(
        self,
        who: str,
        delivery: int,
        children: Sequence[Entry],
        checkpoint: Mapping[str, Any] | None,
        result: int | None,
    ) -> bool:
        lease = self._take(who, delivery)
        return await _won(lease.complete(children, checkpoint, result))

    async def release(self, who: str, delivery: int, delay: float, priority: int | None) -> bool:
        return await _won(self._take(who, delivery).release(delay, "boom", priority))

    async def bury(self, who: str, delivery: int) -> bool:
        return await _won(self._take(who, delivery).bury("gone"))

    async def give_back(self, who: str, delivery: int) -> bool:
        return await _won(self._take(who, delivery).give_back())

    async def progress(
        self, who: str, delivery: int, children: Sequence[Entry], checkpoint: Mapping[str, Any]
    ) -> bool:
        return await _won(self._take(who, delivery).progress(children, checkpoint))

    async def drop(self, who: str, delivery: int, checkpoint: Mapping[str, Any]) -> bool:
        return await _won(self._take(who, delivery).drop(checkpoint))

    async def settle_spent_tokens(self) -> bool:
        """Whether every token that was settled or lost before is refused, with what it brings."""
        tokens, self._spent = self._spent[-5:], []
        for who in self._queues:
            client = (await self.queue(who).open_session()).client
            ghost = Addition([client.reader.read("ghost", Defaults())], {b"ghost": b"1"})
            again = [Settlement(token, Move.COMPLETE, addition=ghost) for token in tokens]
            settled = await client.ask("settle", partial(_settle, client, again))
            if any(one.outcome is not Outcome.LOST for one in settled):
                return False
        return True

    async def crash(self, who: str) -> None:
        name = await self._abandon(who)
        survivor = next(other for other in self._queues if other != who)
        await self._reap(survivor, [name])
        self._queues[who] = self._new_queue()

    async def close(self, who: str) -> None:
        self._forget_leases(who)
        await self.queue(who).close()

    async def restart(self) -> None:
        names = [await self._abandon(who) for who in self._queues]
        await self._inner.close()
        self._inner = self._reopen()
        self._store = make_faulty(self._inner)
        self._queues = {who: self._new_queue() for who in self._queues}
        await self._reap("one", names)

    async def _abandon(self, who: str) -> bytes:
        """Stop what runs in the background, and do nothing else that a crash would not do."""
        self._forget_leases(who)
        session = await self.queue(who).open_session()
        await session.client.tasks.cancel()
        return session.client.name

    def _forget_leases(self, who: str) -> None:
        gone = [at for at in self._held if at[0] == who]
        self._spent += [self._held.pop(at).token for at in gone]

    async def _reap(self, survivor: str, names: Sequence[bytes]) -> None:
        session = await self.queue(survivor).open_session()
        client = session.client
        beats = (await insist(lambda: client.engine.beat(client.name), 30.0)).consumers
        for name in names:
            reap = partial(client.engine.reap, name, beats.get(name, 0))
            while (await insist(reap, 30.0)).more:
                pass

    async def stats(self) -> QueueStats:
        return await self.queue().stats()

    async def dead(self) -> list[tuple[Any, ...]]:
        return [
            (
                d.id,
                d.reason.value,
                d.attempts,
                d.deaths,
                tuple(f.message for f in d.failures),
                d.buried_at,
            )
            async for d in self.queue().dead_letters(page_size=3)
        ]

    async def checkpoint(self, name: str) -> Any:
        return await self.queue().checkpoint(name)

    async def results(self) -> list[Any]:
        return [result for _, result in await self.queue().results()]

    async def end(self) -> None:
        for queue in self._queues.values():
            await queue.close()
        await self._inner.close()


async def _settle(client: Client, settlements: Sequence[Settlement], op: Op) -> list[Settled]:
    return await client.engine.settle(op, settlements)


async def _won(settling: Any) -> bool:
    try:
        await settling
    except LeaseLost:
        return False
    return True
