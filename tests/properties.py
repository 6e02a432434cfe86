"""Properties over a queue in memory; the machines compare the other stores with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import HealthCheck, settings

from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import KVStoreQueue, QueueOptions
from data_fetcher_core.testing import ManualClock


def quick(examples: int) -> Callable[[Any], Any]:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


def in_memory(
    test: Callable[[KVStoreQueue, ManualClock], Coroutine[Any, Any, None]], **options: Any
) -> None:
    """Run a property on a queue of its own; the machines compare the other stores with this one."""

    async def run() -> None:
        clock = ManualClock()
        queue = KVStoreQueue(
            MemoryStore(),
            "fetch:property",
            options=QueueOptions(**options),
            clock=clock,
            subscriber=lambda _: None,
        )
        await test(queue, clock)
        await queue.close()

    asyncio.run(run())
