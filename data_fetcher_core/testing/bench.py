"""What the checks of a queue work on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.queue.kv_store_queue import KVStoreQueue
from data_fetcher_core.queue.options import QueueOptions
from data_fetcher_core.queue.serializers import JSONSerializer
from data_fetcher_core.testing.clock import ManualClock
from data_fetcher_core.testing.faults import Fault, make_faulty

MakeQueue = Callable[..., KVStoreQueue]


class Bench:
    """A store that can be made to fail, a clock that stands still, and queues on them."""

    def __init__(self, store: KeyValueStore, make_queue: MakeQueue) -> None:
        self.store = make_faulty(store)
        self.clock = ManualClock()
        self._make_queue = make_queue
        self._queues: list[KVStoreQueue] = []

    def queue(self, namespace: str = "fetch:check", **options: Any) -> KVStoreQueue:
        queue = self._make_queue(
            self.store,
            namespace,
            JSONSerializer(),
            options=QueueOptions(**options),
            clock=self.clock,
            subscriber=lambda _: None,
        )
        self._queues.append(queue)
        return queue

    def lose(self, fault: Fault) -> None:
        self.store.faults.plan(fault, self.store.verb)

    async def kill(self, queue: KVStoreQueue) -> bytes:
        """Stop a consumer as a crash does; its name."""
        self._queues.remove(queue)
        session = await queue.open_session()
        await session.client.tasks.cancel()
        return session.client.name

    async def outlive(self, queue: KVStoreQueue, other: KVStoreQueue) -> None:
        """Kill ``queue``, and let ``other`` notice by its silence."""
        await self.kill(queue)
        await other.sweep()
        self.clock.advance(31.0)
        await other.sweep()

    async def end(self) -> None:
        for queue in self._queues:
            with suppress(Exception):
                await queue.close()
        await self.store.inner.close()
