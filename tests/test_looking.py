"""Looking into a queue: what is shown, counted again and kept for a while."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data_fetcher_core import Entry, Priority
from data_fetcher_core.kv_store.transactional import TransactionalStore
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.queue.lane_state import decode_lane, decode_state
from data_fetcher_core.queue.ordered_keys import OrderedKeys
from data_fetcher_core.testing import ManualClock
from tests.conftest import MakeQueue, OpenStore
from tests.harness import accounted, client_of, everything, items, letters, overwrite


@pytest.mark.parametrize("store_kind", ["memory", "sqlite"], indirect=True)
async def test_counts_that_are_wrong_are_mended(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store = open_store()
    assert isinstance(store, TransactionalStore)
    queue = make_queue(store=store)
    await queue.enqueue([Entry(n, lane="a") for n in range(5)])
    await queue.enqueue(["later"], delay=5.0)
    held = await queue.lease(2)
    await held[0].bury("no")
    keys = OrderedKeys(b"fetch:test")
    stored = decode_state((await everything(store))[keys.state])
    spoilt = replace(stored, ready=30, delayed=10, leased=10, dead=10)
    await overwrite(store, keys.state, spoilt.encode())
    lane = decode_lane(b"a", (await everything(store))[keys.lane(b"a")])
    await overwrite(store, keys.lane(b"a"), replace(lane, in_flight=9).encode())
    assert await queue.recount() == {
        "ready": (30, 3),
        "delayed": (10, 1),
        "leased": (10, 1),
        "dead": (10, 1),
        "in_flight:a": (9, 1),
    }
    assert (await accounted(queue)).ready == 3


@pytest.mark.parametrize("store_kind", ["memory", "sqlite"], indirect=True)
async def test_only_so_many_are_looked_at(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(5))
    for lease in await queue.lease(5):
        await lease.bury("no")
    engine = (await client_of(queue)).engine
    assert [len(await engine.dead(None, want)) for want in (1, 3, 9)] == [1, 3, 5]
    first, second = await engine.dead(None, 2)
    assert (await engine.dead(first.position, 1)) == [second]


async def test_the_heart_purges_and_so_does_who_asks_for_it(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = make_queue(dead_retention=10.0)
    for item in range(3):
        await queue.enqueue([item])
        (lease,) = await queue.lease()
        await lease.bury("no")
        clock.advance(6.0)
        await queue.sweep()
    assert [letter.item for letter in await letters(queue)] == [2]
    assert await queue.purge_dead() == 1
    await queue.sweep()
    assert (await accounted(queue)).purged == 3


async def test_what_is_shown_is_in_the_order_of_leases(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = make_queue(ageing_step=60.0)
    await queue.enqueue(["old"], priority=Priority.LOW, expires_in=10_000.0)
    clock.advance(130.0)
    await queue.enqueue(["high"], priority=Priority.HIGH, expires_in=500.0)
    await queue.enqueue(["highest"], priority=Priority.VERY_HIGH)
    shown = await queue.peek(9)
    assert shown == ["highest", "old", "high"]
    assert items(await queue.lease(9)) == shown
