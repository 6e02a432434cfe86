"""What bounds a run as a whole, and what its processes agree on: the same over every store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from data_fetcher_core import Entry
from data_fetcher_core.errors import QueueFull, ValidationError
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.queue.engine import STEP_BYTES
from data_fetcher_core.testing import Fault, make_faulty
from tests.conftest import MakeQueue, OpenStore
from tests.harness import (
    accounted,
    background,
    client_of,
    drain,
    eventually,
    items,
    settled,
    spin,
)


def keyed(*keys: str) -> list[Entry]:
    return [Entry(key, key=key) for key in keys]


# --- a bound on keys ---------------------------------------------------------------------------


async def test_keys_beyond_the_bound_are_left_out(make_queue: MakeQueue) -> None:
    queue = make_queue(max_keyed=3)
    assert await queue.enqueue(keyed("a", "b")) == 2
    assert await queue.enqueue(keyed("b", "c", "d")) == 1
    assert await drain(queue) == ["a", "b", "c"]
    stats = await accounted(queue)
    assert (stats.keyed, stats.enqueued, stats.duplicates) == (3, 3, 1)


async def test_children_are_bounded_too_over_all_processes(make_queue: MakeQueue) -> None:
    one, other = make_queue(max_keyed=4), make_queue()
    await one.enqueue(keyed("a", "b"))
    (first,), (second,) = await one.lease(), await other.lease()
    await asyncio.gather(
        first.complete(enqueue=keyed("c", "d", "e")), second.complete(enqueue=keyed("f", "g"))
    )
    assert len(await drain(one)) == 2
    assert (await accounted(other)).keyed == 4


async def test_requests_without_a_key_are_not_counted(make_queue: MakeQueue) -> None:
    queue = make_queue(max_keyed=1)
    assert await queue.enqueue([*keyed("a"), "plain", Entry("other"), *keyed("b")]) == 3
    assert await drain(queue) == ["a", "plain", "other"]


async def test_what_was_left_out_is_not_seen(make_queue: MakeQueue) -> None:
    queue = make_queue(max_keyed=1)
    await queue.enqueue(keyed("a", "b"))
    wider = make_queue(max_keyed=2, update=True)
    assert await wider.enqueue(keyed("b")) == 1
    assert items(await wider.lease(5)) == ["a", "b"]


async def test_a_step_with_a_checkpoint_leaves_out_and_saves(make_queue: MakeQueue) -> None:
    queue = make_queue(max_keyed=1)
    assert await queue.enqueue(keyed("a", "b"), checkpoint={"at": 2}) == 1
    assert await queue.checkpoint("at") == 2


async def test_the_bound_holds_after_a_restart(make_queue: MakeQueue) -> None:
    queue = make_queue(max_keyed=2)
    await queue.enqueue(keyed("a"))
    await queue.close()
    again = make_queue()
    assert await again.enqueue(keyed("b", "c")) == 1


# --- a bound on what waits ---------------------------------------------------------------------


async def test_what_is_delayed_takes_up_room_and_what_is_leased_does_not(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(capacity=3, on_full="raise")
    await queue.enqueue(["later", "later"], delay=5.0)
    await queue.enqueue(["now"])
    with pytest.raises(QueueFull):
        await queue.enqueue(["too much"])
    (lease,) = await queue.lease()
    await queue.enqueue(["in its place"])
    with pytest.raises(QueueFull):
        await queue.enqueue(["too much"])
    await lease.complete(enqueue=["a child always enters"])
    assert (await accounted(queue)).size == 4


async def test_a_key_that_is_brought_again_is_counted_once_however_long_room_takes(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(capacity=1)
    await queue.enqueue(keyed("a"))
    async with background(queue.enqueue(keyed("a", "b", "a", "c", "b"))) as adding:
        for key in "ab":
            await eventually(_next_is(queue, key))
            await spin(100)
            await settled(queue)
            assert (await queue.stats()).duplicates == 1 + "ab".index(key)
            await queue.dequeue()
        enqueued = await adding
    first_a, first_b, second_a, c, second_b = enqueued.ids
    assert (enqueued, first_a, first_b) == (2, second_a, second_b)
    assert len({first_a, first_b, c}) == 3
    stats = await accounted(queue)
    assert (stats.enqueued, stats.duplicates) == (3, 3)


def _next_is(queue: KVStoreQueue, item: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return await queue.peek(1) == [item]

    return look


async def test_what_a_full_queue_refuses_is_not_counted(make_queue: MakeQueue) -> None:
    queue = make_queue(capacity=1, on_full="raise")
    await queue.enqueue(keyed("a"))
    for tries in range(1, 4):
        with pytest.raises(QueueFull) as caught:
            await queue.enqueue(keyed("a", "b", "a"))
        assert caught.value.accepted == 0
        assert (await queue.stats()).duplicates == tries, "the one before what found no room"


async def test_what_brings_more_keys_than_the_bound_waits_for_room_in_order(
    make_queue: MakeQueue,
) -> None:
    """What is over the bound takes no room; behind what waits for room it is told at its turn."""
    queue = make_queue(capacity=1, max_keyed=1)
    await queue.enqueue(keyed("a"))
    brought: list[Entry | str] = [*keyed("over", "a"), "plain", *keyed("a", "over")]
    async with background(queue.enqueue(brought)) as adding:
        await spin(100)
        await settled(queue)
        assert not adding.done()
        await queue.dequeue()
        enqueued = await adding
    assert (enqueued, len(enqueued.ids)) == (1, 5)
    stats = await accounted(queue)
    assert (stats.enqueued, stats.keyed, stats.duplicates) == (2, 1, 2)


# --- agreeing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, "text", {"a": [1.5, None]}, [], ""], ids=repr)
async def test_a_checkpoint_is_swapped_if_it_is_as_expected(
    queue: KVStoreQueue, value: Any
) -> None:
    assert await queue.swap_checkpoint("name", None, value)
    assert await queue.checkpoint("name") == value
    assert not await queue.swap_checkpoint("name", None, "other")
    assert not await queue.swap_checkpoint("name", "different", "other")
    assert await queue.checkpoint("name") == value
    assert await queue.swap_checkpoint("name", value, {"next": True})
    assert await queue.swap_checkpoint("name", {"next": True}, None)
    assert await queue.checkpoint("name") is None


async def test_swapping_again_what_was_swapped_says_so_again(queue: KVStoreQueue) -> None:
    assert await queue.swap_checkpoint("name", None, 1)
    assert await queue.swap_checkpoint("name", None, 1)


async def test_of_many_who_swap_one_wins(make_queue: MakeQueue) -> None:
    queues = [make_queue() for _ in range(4)]
    won = await asyncio.gather(
        *(q.swap_checkpoint("name", None, [n, i]) for n, q in enumerate(queues) for i in range(5))
    )
    assert won.count(True) == 1


async def test_a_value_that_cannot_be_saved(queue: KVStoreQueue) -> None:
    with pytest.raises(ValidationError):
        await queue.swap_checkpoint("name", None, object())


# --- what a lease tells of its lane ------------------------------------------------------------


async def test_a_lease_tells_the_limit_of_its_lane(make_queue: MakeQueue) -> None:
    queue = make_queue(lane_concurrency=5)
    await queue.pace("slow", limit=2)
    await queue.enqueue([Entry(1, lane="slow"), Entry(2, lane="other")])
    limits = {lease.lane: lease.lane_limit for lease in await queue.lease(2)}
    assert limits == {"slow": 2, "other": 5}


async def test_a_lease_tells_the_same_when_its_answer_was_lost(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store = make_faulty(open_store())
    queue = make_queue(store=store, lane_concurrency=5, lane_interval=7.0)
    await queue.enqueue([Entry(1, lane="a")])
    (await queue.open_session())._greeted = True
    store.faults.plan(Fault.AFTER, store.verb)
    (lease,) = await queue.lease()
    assert (lease.item, lease.lane, lease.lane_limit, lease.interval) == (1, "a", 5, 7.0)
    await lease.complete()


async def test_a_lane_without_a_limit(queue: KVStoreQueue) -> None:
    await queue.enqueue([1])
    (lease,) = await queue.lease()
    assert lease.lane_limit == 0


async def test_a_step_is_bounded_in_bytes_too(make_queue: MakeQueue, open_store: OpenStore) -> None:
    """A thousand large requests would be sent, and answered, for longer than anybody waits."""
    store = make_faulty(open_store())
    queue = make_queue(store=store, compress_over=0)
    large = "x" * (STEP_BYTES // 4)
    before = store.faults.calls[store.verb]
    await queue.enqueue(f"{n}{large}" for n in range(6))
    await asyncio.gather(*(queue.enqueue([f"{n}{large}"]) for n in range(6, 12)))
    assert store.faults.calls[store.verb] - before >= 4
    got: list[str] = []
    while leases := await queue.lease(12):
        assert len(leases) <= 4
        got += [lease.item.removesuffix(large) for lease in leases]
        await asyncio.gather(*(lease.complete() for lease in leases))
    assert sorted(got, key=int) == [str(n) for n in range(12)]


async def test_who_asks_together_for_large_requests_gets_them_all(make_queue: MakeQueue) -> None:
    """One step has not enough for all: who got nothing of it asks again."""
    queue = make_queue(compress_over=0)
    large = "x" * (STEP_BYTES // 3)
    await queue.enqueue(f"{n}{large}" for n in range(9))
    leased = await asyncio.gather(*(queue.lease() for _ in range(9)))
    assert sorted(lease.item[0] for (lease,) in leased) == [str(n) for n in range(9)]


async def test_pages_with_large_results_are_settled_in_more_steps(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    """Sixty of half a megabyte each, at once: no step brings more than its bytes."""
    queue, result = make_queue(), "x" * 2**19
    await queue.enqueue(range(60))
    leases = await queue.lease(60)
    engine, sizes = (await client_of(queue)).engine, list[int]()
    settle = engine.settle

    async def weighed(op: Any, settlements: Any) -> Any:
        sizes.append(sum(len(one.result or b"") for one in settlements))
        return await settle(op, settlements)

    engine.settle = weighed
    await asyncio.gather(*(lease.complete(result=result) for lease in leases))
    assert sum(sizes) >= 60 * 2**19
    assert max(sizes) <= STEP_BYTES
    assert (await accounted(queue)).completed == 60
