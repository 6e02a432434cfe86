"""Who waits learns of a gate that was shut, or of what came behind it, after it fell asleep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from data_fetcher_core import Entry
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue
from tests.harness import asleep

SOON = 3.0


@pytest.mark.parametrize("lanes", [None, ["a"]], ids=["anywhere", "in its lane"])
async def test_what_comes_behind_a_gate_is_leased_when_it_opens(
    open_store: Callable[[], KeyValueStore], lanes: list[str] | None
) -> None:
    waiter = KVStoreQueue(open_store(), "gates", JSONSerializer())
    other = KVStoreQueue(open_store(), "gates", JSONSerializer())
    async with waiter, other:
        waiting = asyncio.ensure_future(waiter.lease(wait=60.0, lanes=lanes))
        await asleep(waiter)
        await other.shut("a", 0.3)
        await other.enqueue([Entry("x", lane="a")])
        (lease,) = await asyncio.wait_for(waiting, SOON)
        await lease.complete()


async def test_what_a_busy_consumer_leaves_behind_is_leased_by_who_waits(
    open_store: Callable[[], KeyValueStore],
) -> None:
    waiter = KVStoreQueue(open_store(), "gates", JSONSerializer())
    busy = KVStoreQueue(open_store(), "gates", JSONSerializer())
    async with waiter, busy:
        await busy.pace("a", interval=0.3)
        waiting = asyncio.ensure_future(waiter.lease(wait=60.0, lanes=["b"]))
        await asleep(waiter)
        waiting.cancel()
        await busy.enqueue([Entry(n, lane="a") for n in range(2)])
        (first,) = await busy.lease()
        waiting = asyncio.ensure_future(waiter.lease(wait=60.0))
        (second,) = await asyncio.wait_for(waiting, SOON)
        assert (first.item, second.item) == (0, 1)
