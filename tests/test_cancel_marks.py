"""A cancelled request is dropped; what is accepted later under the same id is another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from data_fetcher_core import Entry
from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.testing import Fault, make_faulty
from data_fetcher_core.testing.faults import FaultyScriptStore, FaultyStore
from tests.conftest import MakeQueue, OpenStore
from tests.evidence import Evidence
from tests.harness import accounted, eventually, everything, items, letters, places

MORE_THAN_A_CANCEL_TAKES = 12
_CUTS = range(1, MORE_THAN_A_CANCEL_TAKES)


def page(item: str) -> Entry:
    return Entry(item, key="page")


# --- what comes after it -----------------------------------------------------------------------


@pytest.mark.parametrize("move", ["complete", "release", "give_back", "bury"])
async def test_what_comes_again_is_not_dropped_for_what_is_in_flight(
    make_queue: MakeQueue, move: str, shows: Evidence
) -> None:
    queue, other = make_queue(), make_queue()
    ids = (await queue.enqueue([page("old")])).ids
    (old,) = await queue.lease()
    assert await other.cancel(ids, forget=True) == 1
    assert (await queue.enqueue([page("new")])).ids == ids
    (new,) = await other.lease()
    assert new.item == "new"
    await getattr(old, move)()
    await new.release()
    assert await other.dequeue(9) == ["new"]
    stats = await accounted(queue)
    done = (stats.completed, stats.cancelled)
    assert done == ((2, 0) if move == "complete" else (1, 1))
    shows("F11", "accepted after a cancellation, and dropped by it", stats.size, exactly=0)


async def test_several_leases_of_one_id_are_marked_each_for_itself(make_queue: MakeQueue) -> None:
    queue = make_queue()
    await queue.enqueue([Entry(n, id="same") for n in range(3)])
    first, second, third = await queue.lease(3)
    assert await queue.cancel(["same"]) == 3
    await queue.enqueue([Entry("new", id="same")])
    for lease in (first, second):
        await lease.release()
    assert await places(queue) == {"ready": 1, "leased": 1}
    await third.complete()
    assert await queue.dequeue(9) == ["new"]
    stats = await accounted(queue)
    assert (stats.cancelled, stats.completed) == (2, 2)


async def test_both_are_cancelled_where_both_are_in_flight(make_queue: MakeQueue) -> None:
    queue = make_queue()
    ids = (await queue.enqueue([page("old")])).ids
    (old,) = await queue.lease()
    await queue.cancel(ids, forget=True)
    await queue.enqueue([page("new")])
    (new,) = await queue.lease()
    assert await queue.cancel(ids) == 2
    await old.release()
    await new.release()
    assert await places(queue) == {}
    assert (await accounted(queue)).cancelled == 2


# --- cut short ---------------------------------------------------------------------------------


async def cut_short(
    store: FaultyStore | FaultyScriptStore, queue: KVStoreQueue, call: int, ids: list[str]
) -> bool:
    """Cancel, and go away during one of its steps; whether there were so many."""
    store.faults.plan(Fault.HANG, store.verb, call)
    before = store.faults.calls[store.verb]
    cancelling = asyncio.ensure_future(queue.cancel(ids, forget=True))

    async def is_reached() -> bool:
        return cancelling.done() or store.faults.calls[store.verb] == before + call

    await eventually(is_reached)
    cancelling.cancel()
    await asyncio.gather(cancelling, return_exceptions=True)
    store.faults.heal()
    return cancelling.cancelled()


@pytest.mark.parametrize("way", ["enqueue", "child", "requeue"])
async def test_a_cancellation_that_is_cut_short_touches_nothing_that_comes_later(
    make_queue: MakeQueue, open_store: OpenStore, way: str, shows: Evidence
) -> None:
    store = make_faulty(open_store())
    queue, dropped, cuts = make_queue(store=store), 0, 0
    for call in _CUTS:
        name = f"job-{call}"
        enter = await prepared(queue, name, way)
        cuts += await cut_short(store, queue, call, [name])
        await enter()
        got = await queue.lease(9)
        dropped += name not in items(got)
        for lease in got:
            await lease.release(delay=0.0)
        for lease in await queue.lease(9):
            dropped += lease.item != name
            await lease.complete()
    shows("F11", f"cancellations cut short, then {way}", cuts, at_least=3)
    shows("F11", f"dropped by a cancellation cut short before: {way}", dropped, exactly=0)
    assert (await accounted(queue)).cancelled == 0


async def prepared(queue: KVStoreQueue, name: str, way: str) -> Callable[[], Awaitable[Any]]:
    """What will take a request of that name in, once it is called."""
    entry = Entry(name, id=name)
    if way == "enqueue":
        return lambda: queue.enqueue([entry])
    if way == "child":
        await queue.enqueue(["parent"])
        (parent,) = await queue.lease()
        return lambda: parent.complete(enqueue=[entry])
    await queue.enqueue([entry])
    (lease,) = await queue.lease()
    await lease.bury("for now")
    return lambda: queue.requeue([name])


async def test_a_repeated_cancellation_finishes_one_that_was_cut_short(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store = make_faulty(open_store())
    queue = make_queue(store=store)
    for call in _CUTS:
        names = [f"{kind}-{call}" for kind in ("held", "ready", "later", "kept")]
        for name in names:
            entry = Entry(name, id=name, key=name, delay=5.0 * (name == names[2]))
            await queue.enqueue([entry])
            if name == names[0]:
                (held,) = await queue.lease()
        await cut_short(store, queue, call, names[:3])
        await queue.cancel(names[:3], forget=True)
        await held.release()
        assert await queue.dequeue(9) == names[3:]
        again = [Entry(name, key=name) for name in names]
        assert int(await queue.enqueue(again)) == 3, "the keys of those that went are forgotten"
        assert await queue.dequeue(9) == names[:3]
    assert (await accounted(queue)).cancelled == 3 * len(_CUTS)


@pytest.mark.parametrize("store_kind", ["memory", "sqlite"], indirect=True)
async def test_a_cancellation_leaves_nothing_behind(queue: KVStoreQueue) -> None:
    await queue.enqueue([Entry(n, id=str(n)) for n in range(4)])
    leases = await queue.lease(3)
    store: Any = queue._store
    before = await everything(store)
    assert await queue.cancel(["0", "1", "2", "none"]) == 3
    await leases[0].complete()
    await leases[1].release()
    await leases[2].give_back()
    assert len(await everything(store)) <= len(before)
    await accounted(queue)


# --- keys that are forgotten -------------------------------------------------------------------


@pytest.mark.parametrize("where", ["ready", "delayed", "leased"])
async def test_a_key_is_forgotten_once_however_often_that_is_asked(
    make_queue: MakeQueue, open_store: OpenStore, where: str, shows: Evidence
) -> None:
    """Another process brings the key again before a step whose reply was lost is repeated."""
    other = make_queue()
    told = [await brought_meanwhile(make_queue, open_store, other, where, cut) for cut in _CUTS]
    lost = sum(len(accepted) > 1 for accepted in told)
    shows("F3", f"replies of a cancellation lost, {where}", lost, at_least=3)
    twice = sum(sum(accepted) > 1 for accepted in told)
    shows("F3", f"keys accepted twice, {where}", twice, exactly=0)
    await accounted(other)


async def brought_meanwhile(
    make_queue: MakeQueue, open_store: OpenStore, other: KVStoreQueue, where: str, cut: int
) -> list[int]:
    """What ``other`` was told of the key while that was cancelled, and after that."""
    store = make_faulty(open_store())
    queue, told = make_queue(store=store), list[int]()
    again = Entry("new", key=f"{where}-{cut}")
    entry = Entry("old", key=again.key, delay=9.0 * (where == "delayed"))
    ids = (await queue.enqueue([entry])).ids
    held = await queue.lease() if where == "leased" else []

    async def bring() -> None:
        told.append(int(await other.enqueue([again])))

    lose_reply(store, cut, bring)
    await queue.cancel(ids, forget=True)
    if told and not (await queue.stats()).size:
        # The cancellation took it along, key and all: it was still under way.
        told[:] = [0]
    await bring()
    for lease in (*held, *await other.lease(9)):
        await lease.complete()
    return told


def lose_reply(
    store: FaultyStore | FaultyScriptStore, call: int, act: Callable[[], Awaitable[None]]
) -> None:
    """Let the reply to a call be lost, and something happen before that is known."""
    ask, calls = getattr(store, store.verb), iter(range(call))

    async def interrupted(*args: Any, **named: Any) -> Any:
        answer = await ask(*args, **named)
        if next(calls, None) == call - 1:
            await act()
            raise StoreUnavailable("the reply was lost")
        return answer

    setattr(store, store.verb, interrupted)


async def test_what_was_buried_under_a_marked_id_comes_back(make_queue: MakeQueue) -> None:
    queue = make_queue()
    await queue.enqueue([Entry("x", id="x"), Entry("y", id="x")])
    buried, held = await queue.lease(2)
    await buried.bury("gone")
    assert await queue.cancel(["x"]) == 1
    assert await queue.requeue() == 1
    assert await queue.dequeue(9) == ["x"]
    await held.release()
    assert await places(queue) == {}
    assert await letters(queue) == []
    await accounted(queue)


# --- longer than an operation may take -----------------------------------------------------------


STEP_TAKES = 0.1


def made_slow(store: FaultyStore | FaultyScriptStore) -> None:
    around = store.faults.around

    async def later(verb: str, act: Callable[[], Awaitable[Any]]) -> Any:
        await asyncio.sleep(STEP_TAKES if verb == store.verb else 0)
        return await around(verb, act)

    store.faults.around = later  # type: ignore[method-assign]


async def slow_queue(make_queue: MakeQueue, open_store: OpenStore, waiting: int) -> KVStoreQueue:
    """Every step takes a tenth of what a whole operation may."""
    store = make_faulty(open_store())
    queue = make_queue(store=store, op_timeout=10 * STEP_TAKES)
    await queue.enqueue([Entry(n, id=str(n)) for n in range(waiting)])
    made_slow(store)
    return queue


@pytest.mark.slow
async def test_a_walk_over_all_that_waits_may_take_as_long_as_it_takes(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    queue = await slow_queue(make_queue, open_store, 12_000)
    assert await queue.cancel(["0", "5999", "11999", "unknown"]) == 3
    assert await queue.size() == 11_997


@pytest.mark.slow
async def test_many_who_cancel_wait_for_one_another(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    queue = await slow_queue(make_queue, open_store, 10)
    assert await asyncio.gather(*(queue.cancel([str(n)]) for n in range(5))) == [1] * 5
    assert await queue.size() == 5


@pytest.mark.slow
async def test_forgetting_much_may_take_as_long_as_it_takes(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    queue = await slow_queue(make_queue, open_store, 0)
    lanes = [Entry(n, lane=f"lane {n}", key=str(n)) for n in range(16_000)]
    await make_queue().enqueue(lanes)
    await queue.forget()
    assert await make_queue().size() == 0
