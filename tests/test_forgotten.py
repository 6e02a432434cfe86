"""A run that was forgotten on purpose is not one that was lost, and neither is a finished one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from data_fetcher_core import Entry
from data_fetcher_core.errors import LeaseLost, StoreError, StoreLost
from data_fetcher_core.kv_store.transactional import TransactionalStore
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue, clearing
from data_fetcher_core.queue.engine import REMEMBERED_FORGETS
from data_fetcher_core.testing import Fault, ManualClock, make_faulty
from tests.conftest import MakeQueue, OpenStore
from tests.evidence import Evidence
from tests.harness import accounted, background, client_of, erase, impatient, spin

Empty = Callable[[], Awaitable[None]]

VERBS: dict[str, Callable[[KVStoreQueue], Awaitable[Any]]] = {
    "enqueue": lambda queue: queue.enqueue(["x"]),
    "lease": lambda queue: queue.lease(),
    "dequeue": lambda queue: queue.dequeue(),
    "stats": lambda queue: queue.stats(),
    "peek": lambda queue: queue.peek(),
    "sweep": lambda queue: queue.sweep(),
    "cancel": lambda queue: queue.cancel(["x"], forget=True),
    "requeue": lambda queue: queue.requeue(),
    "clear": lambda queue: queue.clear(),
    "shut": lambda queue: queue.shut("lane", 1.0),
    "checkpoint": lambda queue: queue.checkpoint("at"),
    "results": lambda queue: queue.results(),
}


@pytest.fixture
def empty(
    store_kind: str, open_store: OpenStore, request: pytest.FixtureRequest
) -> Callable[[], Awaitable[None]]:
    """Empty the store, as a server that comes back without its data is."""

    async def emptied() -> None:
        if store_kind == "redis":
            request.getfixturevalue("redis_server").flush()
            return
        store = open_store()
        assert isinstance(store, TransactionalStore)
        await erase(store)

    return emptied


async def told_of(ask: Awaitable[Any]) -> str:
    try:
        await ask
    except StoreError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


# --- lost --------------------------------------------------------------------------------------


async def test_a_store_that_was_emptied_and_opened_again_is_not_drained(
    make_queue: MakeQueue, empty: Empty, shows: Evidence
) -> None:
    queue, done = make_queue(), list[int]()
    await queue.enqueue(range(10))

    async def another_opens() -> None:
        """A worker that was restarted, or somebody who looks at the run."""
        await empty()
        await make_queue().stats()

    with pytest.raises(StoreLost, match="no longer holds this run"):
        await until_drained(queue, done, another_opens)
    shows("F6", "emptied and opened by another: done before that was told", len(done), exactly=3)


async def until_drained(queue: KVStoreQueue, done: list[int], meanwhile: Empty) -> None:
    async for lease in queue.leases(until="drained"):
        async with lease:
            done.append(lease.item)
        if len(done) == 3:
            await meanwhile()


async def test_every_verb_tells_that_the_run_is_lost(
    make_queue: MakeQueue, empty: Empty, shows: Evidence
) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(["old", "older"])
    (lease,) = await queue.lease()
    await empty()
    await other.enqueue(["new"])
    told = [await told_of(ask(queue)) for ask in VERBS.values()]
    told.append(await told_of(lease.complete(enqueue=["child"])))
    lost = sum(one.startswith("StoreLost: ") for one in told)
    shows("F6", "emptied and opened by another: verbs that told StoreLost", lost, exactly=13)
    assert await other.dequeue(9) == ["new"], "nothing of the old run got into the new one"
    await accounted(other)


async def test_a_run_that_was_forgotten_and_then_lost_is_lost(
    make_queue: MakeQueue, empty: Empty
) -> None:
    queue, other = make_queue(), make_queue()
    await queue.enqueue(["old"])
    await other.forget()
    await empty()
    await make_queue().enqueue(["new"])
    with pytest.raises(StoreLost):
        await queue.dequeue()


# --- forgotten ---------------------------------------------------------------------------------


async def test_a_queue_follows_however_the_run_was_forgotten(make_queue: MakeQueue) -> None:
    queue = make_queue()
    await queue.enqueue(["old"])
    for _ in range(REMEMBERED_FORGETS):
        await make_queue().forget()
    await make_queue().enqueue(["new"])
    assert await queue.dequeue(9) == ["new"]


async def test_who_missed_more_than_is_remembered_is_told(make_queue: MakeQueue) -> None:
    queue = make_queue()
    await queue.enqueue(["old"])
    for _ in range(REMEMBERED_FORGETS + 1):
        await make_queue().forget()
    with pytest.raises(StoreLost):
        await queue.dequeue()


async def test_a_forgetting_that_another_finishes_is_one(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store = make_faulty(open_store())
    queue, dying = make_queue(), make_queue(store=store)
    await queue.enqueue(range(3_500))
    await dying.size()
    await impatient(dying, 0.2)
    for call in range(2, 500):
        store.faults.plan(Fault.BEFORE, store.verb, call)
    with pytest.raises(StoreError):
        await dying.forget()
    await queue.enqueue(["new"])
    assert await queue.dequeue(9) == ["new"]


async def test_a_step_of_forgetting_that_comes_again_forgets_no_other_run(
    make_queue: MakeQueue,
) -> None:
    """Its answer was lost, and the queue that repeats it is already in the run that followed."""
    queue, other = make_queue(), make_queue()
    await queue.enqueue(["old"])
    begun_anew: list[int] = []

    async def answer_is_lost(ask: Callable[[], Awaitable[Any]]) -> Any:
        await ask()
        await other.enqueue([f"new {len(begun_anew)}"])
        begun_anew.append(await queue.size())
        return await ask()

    await (await client_of(queue)).engine.forget(answer_is_lost)
    assert begun_anew[:1] == [1]
    assert await other.peek(9) == [f"new {n}" for n, _ in enumerate(begun_anew)]


async def test_a_clearing_goes_no_further_than_its_run(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numbers say nothing of the run that followed."""
    monkeypatch.setattr(clearing, "STEP", 2)
    monkeypatch.setattr(clearing, "MOST_READ", 2)
    queue, other = make_queue(), make_queue()
    await queue.enqueue([Entry(n, key=str(n)) for n in range(9)])
    client = await client_of(queue)
    begun = await client.ask("clear", client.engine.clear)
    assert begun.place is not None
    await other.forget()
    await other.enqueue(["new", Entry("keyed", key="1")])
    assert await queue.size() == 2
    place = begun.place
    going_on = await client.ask("clear", lambda op: client.engine.clear(op, place))
    assert going_on == (0, None)
    assert await other.peek(9) == ["new", "keyed"]
    assert await other.enqueue([Entry("keyed", key="1")]) == 0


async def test_a_queue_that_forgets_its_run_while_it_is_used_is_as_new(
    make_queue: MakeQueue, open_store: OpenStore, clock: ManualClock
) -> None:
    """Also where it does not follow: it has forgotten the run itself."""
    queue = KVStoreQueue(open_store(), "fetch:test", clock=clock, follows=False)
    await queue.enqueue(range(3))

    async def look_again_and_again() -> None:
        while True:
            with suppress(StoreLost):
                await queue.stats()
            await asyncio.sleep(0)

    async with background(look_again_and_again()):
        await spin()
        await queue.forget()
    assert await queue.enqueue(["anew"]) == 1
    assert await make_queue().dequeue(9) == ["anew"]
    await queue.close()


# --- not to be followed ------------------------------------------------------------------------


async def test_who_does_not_follow_is_told_that_the_run_was_forgotten(
    make_queue: MakeQueue, open_store: OpenStore, clock: ManualClock, shows: Evidence
) -> None:
    other = make_queue()
    queue = KVStoreQueue(
        open_store(),
        "fetch:test",
        JSONSerializer(),
        clock=clock,
        subscriber=lambda _: None,
        follows=False,
    )
    await queue.enqueue(["old", "older"])
    (lease,) = await queue.lease()
    await other.forget()
    await other.enqueue(["new"])
    told = {await told_of(ask(queue)) for ask in VERBS.values()}
    assert told == {"StoreLost: the run fetch:test was forgotten while it was being worked on"}
    with pytest.raises(LeaseLost):
        await lease.complete(enqueue=["child"])
    stats = await accounted(other)
    shows("F6", "what a fetcher added to a run begun anew", stats.enqueued - 1, exactly=0)
    assert await other.dequeue(9) == ["new"]


async def test_who_does_not_follow_may_forget_and_begin_anew_itself(
    open_store: OpenStore, clock: ManualClock
) -> None:
    queue = KVStoreQueue(
        open_store(), "fetch:test", clock=clock, subscriber=lambda _: None, follows=False
    )
    await queue.enqueue(["old"])
    await queue.forget()
    await queue.enqueue(["new"])
    assert await queue.dequeue(9) == ["new"]
    await queue.close()
