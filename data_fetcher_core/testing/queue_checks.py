"""``check_queue``: what every queue must do, in plain asserts, one promise after another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio

from data_fetcher_core.core import DeathReason, Entry, Priority
from data_fetcher_core.errors import LeaseLost, QueueFull, StoreUnavailable
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.queue.kv_store_queue import KVStoreQueue
from data_fetcher_core.queue.lease import Lease
from data_fetcher_core.testing.bench import Bench, MakeQueue
from data_fetcher_core.testing.faults import Fault
from data_fetcher_core.testing.texts import AWKWARD_TEXTS

_PATIENCE = 30.0


async def check_queue(
    make_store: Callable[[], KeyValueStore], make_queue: MakeQueue = KVStoreQueue
) -> None:
    """Assert that queues over what ``make_store`` makes keep every promise."""
    for check in _CHECKS:
        bench = Bench(make_store(), make_queue)
        try:
            with anyio.fail_after(_PATIENCE):
                await check(bench)
        except TimeoutError:
            raise AssertionError(f"{check.__name__} did not end in {_PATIENCE:g} s") from None
        finally:
            await bench.end()


def _items(leases: list[Lease]) -> list[Any]:
    return [lease.item for lease in leases]


async def _gone(settling: Awaitable[Any]) -> bool:
    try:
        await settling
    except LeaseLost:
        return True
    return False


# --- the plain verbs ---------------------------------------------------------------------------


async def _payloads(bench: Bench) -> None:
    queue = bench.queue()
    items: list[Any] = [None, False, 0, "", [], {}, "x", {"a": 1}]
    assert await queue.enqueue(items) == len(items), "an empty payload is a payload"
    assert await queue.size() == len(items)
    assert await queue.peek(99) == items
    taken = await queue.dequeue(99)
    assert taken == items, f"in went {items}, out came {taken}"
    assert await queue.size() == 0


async def _first_in_first_out(bench: Bench) -> None:
    queue, other = bench.queue(), bench.queue()
    await queue.enqueue(range(5))
    await other.enqueue(range(5, 10))
    taken = await other.dequeue(3) + await queue.dequeue(99)
    assert taken == list(range(10)), f"first in, first out; not {taken}"


async def _namespaces(bench: Bench) -> None:
    names = [*AWKWARD_TEXTS, "fetch:a", "fetch:a:", "fetch:{a}"]
    queues = [bench.queue(name) for name in dict.fromkeys(names)]
    for number, queue in enumerate(queues):
        await queue.enqueue([Entry(number, lane=names[number], key="same")])
    for number, queue in enumerate(queues):
        assert await queue.size() == 1, f"namespace {names[number]!r} sees another one"
        assert await queue.dequeue(9) == [number]
    await queues[0].enqueue(["x"])
    await queues[1].clear()
    assert await queues[0].size() == 1, "clearing one namespace emptied another"


# --- the promises ------------------------------------------------------------------------------


async def _accepted_is_kept(bench: Bench) -> None:
    queue, other = bench.queue(), bench.queue()
    await queue.enqueue(range(10))
    held = await queue.lease(4)
    assert len(held) == 4
    await bench.outlive(queue, other)
    taken = await other.dequeue(99)
    assert sorted(taken) == list(range(10)), f"after a crash {sorted(taken)} were left of 10"


async def _one_owner(bench: Bench) -> None:
    queue, other = bench.queue(), bench.queue()
    await queue.enqueue(["x"])
    (zombie,) = await queue.lease()
    assert await other.lease() == [], "a leased request was handed out twice"
    await bench.outlive(queue, other)
    (lease,) = await other.lease()
    assert await _gone(zombie.complete(enqueue=["child"])), "a zombie's settlement was accepted"
    stats = await other.stats()
    assert (stats.completed, stats.leased, stats.size) == (0, 1, 0), f"a zombie changed {stats}"
    await lease.complete()


async def _settled_once(bench: Bench) -> None:
    queue = bench.queue()
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    await lease.complete()
    assert await _gone(lease.complete()), "a lease was settled twice"
    assert await _gone(lease.release()), "a settled lease was released"
    assert await queue.size() == 0


async def _settles_with_what_it_produced(bench: Bench) -> None:
    queue = bench.queue()
    await queue.enqueue(["page"])
    (lease,) = await queue.lease()
    links = [Entry("a", key="a"), Entry("b", key="b"), Entry("a again", key="a")]
    assert await lease.complete(enqueue=links, checkpoint={"at": 7}, result={"n": 1}) == 2
    assert await queue.peek(9) == ["a", "b"]
    assert await queue.checkpoint("at") == 7
    assert await queue.results() == [(1, {"n": 1})]
    assert (await queue.stats()).completed == 1


async def _lost_messages(bench: Bench) -> None:
    """Every verb, with its request lost and with its reply lost, happens exactly once."""
    queue = bench.queue()
    await queue.size()
    for fault in (Fault.BEFORE, Fault.AFTER):
        bench.lose(fault)
        assert await queue.enqueue([1, 2, 3]) == 3
        assert await queue.size() == 3, f"{fault.name}: enqueue did not happen exactly once"
        bench.lose(fault)
        leases = await queue.lease(2)
        assert _items(leases) == [1, 2], f"{fault.name}: lease gave {leases}"
        stats = await queue.stats()
        assert (stats.ready, stats.leased) == (1, 2), f"{fault.name}: lease left {stats}"
        bench.lose(fault)
        await leases[0].complete(enqueue=["child"])
        bench.lose(fault)
        await leases[1].release(error="failed")
        stats = await queue.stats()
        assert (stats.ready, stats.leased) == (3, 0), f"{fault.name}: settling left {stats}"
        assert sorted(map(str, await queue.dequeue(9))) == ["2", "3", "child"], fault.name
        assert (await queue.stats()).unaccounted == 0


async def _a_store_that_hangs(bench: Bench) -> None:
    queue = bench.queue(op_timeout=0.3)
    await queue.size()
    bench.lose(Fault.HANG)
    await queue.enqueue(["x"])
    assert await queue.size() == 1, "a call that hung was not repeated exactly once"


async def _keys(bench: Bench) -> None:
    queue, other = bench.queue(), bench.queue()
    calls = [q.enqueue([Entry(n, key="same")]) for n, q in enumerate([queue, other] * 100)]
    enqueued = await asyncio.gather(*calls)
    assert sum(enqueued) == 1, f"200 at once with one key made {sum(enqueued)} requests"
    assert len({ids for one in enqueued for ids in one.ids}) == 1, "and not all got one id"
    await queue.dequeue()
    assert await queue.enqueue([Entry("later", key="same")]) == 0, "a key stays seen"
    await queue.clear()
    assert await queue.enqueue([Entry("later", key="same")]) == 1, "clear forgets the keys"


async def _poison(bench: Bench) -> None:
    queue = bench.queue(max_deaths=3)
    await queue.enqueue(["killer", "a", "b", "c"])
    for _ in range(40):
        held = await queue.lease(4)
        killed = "killer" in _items(held)
        if not killed:
            for lease in held:
                await lease.complete()
        if (await queue.stats()).size + len(held) == 0:
            break
        if killed:
            successor = bench.queue(max_deaths=3)
            await bench.outlive(queue, successor)
            queue = successor
    letters = [letter async for letter in queue.dead_letters()]
    assert [d.item for d in letters] == ["killer"], f"buried: {letters}"
    assert letters[0].reason is DeathReason.POISONED
    assert (await queue.stats()).completed == 3, "its neighbours were not all completed"


# --- order -------------------------------------------------------------------------------------


async def _priorities(bench: Bench) -> None:
    queue = bench.queue(ageing_step=60.0)
    await queue.enqueue(["low"], priority="low")
    await queue.enqueue(["normal", "normal 2"])
    await queue.enqueue(["critical"], priority=Priority.CRITICAL)
    await queue.enqueue(["high"], priority="high")
    order = ["critical", "high", "normal", "normal 2", "low"]
    assert await queue.peek(9) == order
    assert await queue.dequeue(9) == order, "by priority, then first in first out"
    await queue.enqueue(["old and low"], priority="low")
    bench.clock.advance(61.0)
    await queue.enqueue(["new and normal"])
    assert await queue.dequeue() == ["old and low"], "what waited an ageing step longer goes first"


async def _turns(bench: Bench) -> None:
    queue = bench.queue()
    for lane in ("a", "b", "c"):
        await queue.enqueue([f"{lane}{n}" for n in range(40)], lane=lane)
    taken = await queue.dequeue(60)
    shares = [sum(item[0] == lane for item in taken) for lane in "abc"]
    assert shares == [20, 20, 20], f"three equal lanes got {shares} of 60"
    assert taken[:3] == ["a0", "b0", "c0"], f"lanes take turns: {taken[:3]}"


async def _gates(bench: Bench) -> None:
    queue = bench.queue()
    await queue.enqueue(["a1"], lane="a")
    await queue.shut("a", 10.0)
    await queue.enqueue(["b1"], lane="b")
    assert await queue.dequeue(9) == ["b1"], "a shut lane gave something, or blocked another"
    bench.clock.advance(9.9)
    await queue.enqueue(["a2"], lane="a")
    assert await queue.dequeue(9) == [], "a gate opened early"
    bench.clock.advance(0.2)
    assert await queue.dequeue(9) == ["a1", "a2"], "a gate did not open"


async def _intervals_and_limits(bench: Bench) -> None:
    queue = bench.queue()
    await queue.pace("a", interval=1.0)
    await queue.pace("b", limit=2)
    await queue.enqueue([1, 2], lane="a")
    await queue.enqueue([3, 4, 5], lane="b")
    held = await queue.lease(9)
    assert sorted(_items(held)) == [1, 3, 4], f"one in an interval, two at a time: {held}"
    bench.clock.advance(1.0)
    assert _items(await queue.lease(9)) == [2]
    await held[-1].complete()
    assert _items(await queue.lease(9)) == [5], "a settled lease frees a place in its lane"


async def _delays(bench: Bench) -> None:
    queue = bench.queue()
    await queue.enqueue([1, 2], delay=5.0)
    await queue.enqueue([3], delay=0.001)
    await queue.enqueue([4], expires_in=2.0, delay=5.0)
    assert await queue.dequeue(9) == [], "delayed requests came early"
    bench.clock.advance(4.999)
    assert await queue.dequeue(9) == [3]
    bench.clock.advance(0.001)
    assert await queue.dequeue(9) == [1, 2], "delayed requests come in order, when they are due"
    (letter,) = [letter async for letter in queue.dead_letters()]
    assert letter.reason is DeathReason.EXPIRED, letter


async def _capacity(bench: Bench) -> None:
    queue = bench.queue(capacity=3, on_full="raise")
    try:
        await queue.enqueue(range(5))
    except QueueFull as error:
        assert error.accepted == 3, f"{error.accepted} accepted with room for 3"
    else:
        raise AssertionError("a full queue took more")
    (lease,) = await queue.lease()
    await lease.complete(enqueue=["child", "child 2"])
    assert await queue.size() == 4, "children always enter"


# --- failure and the end -----------------------------------------------------------------------


async def _retries(bench: Bench) -> None:
    queue = bench.queue(max_attempts=3)
    await queue.enqueue(["x"])
    for attempts, pause in ((0, 1.0), (1, 5.0), (2, 0.0)):
        (lease,) = await queue.lease()
        assert lease.attempts == attempts, f"{lease.attempts} attempts instead of {attempts}"
        async with lease:
            raise ValueError(f"failure {attempts}")
        assert await queue.lease() == [], "a retry came before its delay"
        bench.clock.advance(pause)
    (letter,) = [letter async for letter in queue.dead_letters()]
    messages = [failure.message for failure in letter.failures]
    assert messages == ["failure 0", "failure 1", "failure 2"], messages
    assert await queue.requeue([letter.id]) == 1
    (lease,) = await queue.lease()
    assert (lease.attempts, len(lease.failures)) == (0, 3), "requeue forgives, and remembers"


async def _cancelling(bench: Bench) -> None:
    queue = bench.queue()
    ids = (await queue.enqueue(["ready"])).ids + (await queue.enqueue(["late"], delay=9)).ids
    ids += (await queue.enqueue(["held"])).ids
    leases = {lease.item: lease for lease in await queue.lease(9)}
    await queue.sweep()
    assert await queue.cancel(ids[1:]) == 2
    await leases["held"].release()
    stats = await queue.stats()
    assert (stats.size, stats.cancelled) == (0, 2), f"cancelled requests are gone: {stats}"


async def _given_back(bench: Bench) -> None:
    queue = bench.queue()
    await queue.enqueue(range(3))
    first, second = await queue.lease(2)
    await second.give_back()
    await first.give_back()
    assert await queue.peek(9) == [0, 1, 2], "what is given back goes to the front"
    with suppress(asyncio.CancelledError):
        async with (await queue.lease())[0]:
            raise asyncio.CancelledError
    (lease,) = await queue.lease()
    assert (lease.item, lease.attempts) == (0, 0), "cancellation spends no attempt"
    await queue.close()
    assert await queue.dequeue(9) == [0, 1, 2], "close gives leases back, and may be undone"


async def _counts(bench: Bench) -> None:
    queue = bench.queue()
    await queue.enqueue([Entry(n, lane=str(n % 3), delay=n % 2) for n in range(30)])
    for lease in await queue.lease(10):
        if lease.item % 4 == 0:
            await lease.complete(enqueue=[Entry("child", lane="9")])
        elif lease.item % 4 == 2:
            await lease.bury("no")
    wrong = await queue.recount()
    assert wrong == {}, f"counts drifted: {wrong}"
    stats = await queue.stats()
    assert stats.unaccounted == 0, f"{stats.unaccounted} unaccounted for: {stats}"


async def _waiting(bench: Bench) -> None:
    queue, other = bench.queue(), bench.queue()
    async with anyio.create_task_group() as group:

        async def wait() -> None:
            (lease,) = await queue.lease(wait=60.0)
            assert lease.item == "late"
            await lease.complete()

        group.start_soon(wait)
        await anyio.sleep(0.01)
        await other.enqueue(["late"])


async def _store_away(bench: Bench) -> None:
    queue = bench.queue(op_timeout=0.2)
    await queue.enqueue(["kept"])
    for call in range(1, 200):
        bench.store.faults.plan(Fault.BEFORE, bench.store.verb, call)
    try:
        await queue.enqueue(["refused"])
    except StoreUnavailable as error:
        assert error.accepted == 0
    else:
        raise AssertionError("a store that is away took a request")
    bench.store.faults.heal()
    assert await queue.dequeue(9) == ["kept"], "what was refused came in, or what was kept went"


_CHECKS: tuple[Callable[[Bench], Awaitable[None]], ...] = (
    _payloads,
    _first_in_first_out,
    _namespaces,
    _accepted_is_kept,
    _one_owner,
    _settled_once,
    _settles_with_what_it_produced,
    _lost_messages,
    _a_store_that_hangs,
    _keys,
    _poison,
    _priorities,
    _turns,
    _gates,
    _intervals_and_limits,
    _delays,
    _capacity,
    _retries,
    _cancelling,
    _given_back,
    _counts,
    _waiting,
    _store_away,
)
