"""Every operation of a queue, cancelled at each of its awaits in turn: nothing is left over."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from data_fetcher_core.core import QueueStats
from data_fetcher_core.errors import StoreLost
from data_fetcher_core.kv_store.redis import RedisStore
from data_fetcher_core.queue import KVStoreQueue, Lease
from data_fetcher_core.queue.lease import LeaseState
from data_fetcher_core.queue.stream import LeaseStream
from tests import operations
from tests.conftest import MakeQueue
from tests.evidence import Evidence
from tests.harness import CancelAt, accounted, beat_twice, foreign_tasks, in_use
from tests.operations import ENDINGS, OPERATIONS, Operation, Stage
from tests.servers import RedisServer
from tests.waiting import until

# --- nothing is left out -------------------------------------------------------------------------

KINDS = (KVStoreQueue, Lease, LeaseStream)
# Steps of other verbs, cancelled with them.
INNER = {"KVStoreQueue.open_session", "KVStoreQueue.lease_selected"}


def _public() -> dict[str, tuple[type, str]]:
    """What can be awaited of a queue, a lease and a stream, ``async with`` and ``for`` included."""
    return {
        f"{kind.__name__}.{name}": (kind, name)
        for kind in KINDS
        for name, verb in inspect.getmembers(kind)
        if name[0] != "_" or name.startswith("__a")
        if inspect.iscoroutinefunction(verb) or inspect.isasyncgenfunction(verb)
    }


def _noted(verb: Callable[..., Any], note: Callable[[], None]) -> Callable[..., Any]:
    """Only what an operation calls itself: what that calls in turn may go, and be cancelled no
    more."""

    @functools.wraps(verb)
    def call(*args: Any, **how: Any) -> Any:
        if sys._getframe(1).f_globals["__name__"] == operations.__name__:
            note()
        return verb(*args, **how)

    return call


@pytest.mark.parametrize("store_kind", ["memory"], indirect=True)
async def test_every_verb_is_cancelled_by_one_of_them(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, shows: Evidence
) -> None:
    public, cancelled = _public(), set[str]()
    for full, (kind, name) in public.items():
        note = functools.partial(cancelled.add, full)
        monkeypatch.setattr(kind, name, _noted(getattr(kind, name), note))
    for number, operation in enumerate([*OPERATIONS.values(), *ENDINGS.values()]):
        stage = Stage(make_queue(f"fetch:{number}"))
        await stage.set()
        await operation(stage)
    left_out = public.keys() - cancelled - INNER
    assert not left_out, left_out
    shows("F11", "public verbs that are cancelled", len(cancelled), at_least=40)
    shows("F11", "public verbs that are not", len(left_out), exactly=0)


# --- each goes on as if nothing had been ---------------------------------------------------------


async def _cancelled_everywhere(
    make_queue: MakeQueue, operation: Operation, shows: Evidence
) -> AsyncIterator[tuple[Stage, set[asyncio.Task[Any]]]]:
    """The stage after each, with the tasks that ran before; every one in a run of its own."""
    store = make_queue()._store
    for nth in itertools.count(1):
        stage = Stage(make_queue(f"fetch:{nth}", store=store))
        known = set(asyncio.all_tasks())
        await stage.set()
        work = CancelAt(operation(stage), nth)
        await _ended(work)
        yield stage, known
        if not work.reached:
            break
    shows("F11", "awaits at which operations were cancelled", nth - 1, at_least=1)


@pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)
@pytest.mark.parametrize("name", OPERATIONS)
async def test_cancelled_at_every_await(
    make_queue: MakeQueue, shows: Evidence, name: str, store_kind: str, redis_server: RedisServer
) -> None:
    clients = await _clients_of_one_round(make_queue, redis_server) if store_kind == "redis" else 0
    left: Counter[str] = Counter()
    async for stage, known in _cancelled_everywhere(make_queue, OPERATIONS[name], shows):
        left += await _left_over(stage, known)
    for what in ("unaccounted for", "leased by nobody", "tasks left running"):
        shows("F11", what, left[what], exactly=0)
    store = stage.queue._store
    if isinstance(store, RedisStore):
        shows("F11", "connections of a queue in use afterwards", in_use(store), exactly=0)
        await until(lambda: redis_server.connected_clients() <= clients + 2)
        more = redis_server.connected_clients() - clients
        shows("F11", "clients more on the server", max(more, 0), at_most=2)


async def _clients_of_one_round(make_queue: MakeQueue, server: RedisServer) -> int:
    stage = Stage(make_queue("fetch:0"))
    await stage.set()
    await stage.queue.close()
    return server.connected_clients()


async def _ended(work: Awaitable[object]) -> None:
    async def finish() -> None:
        await work

    task = asyncio.ensure_future(finish())
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


async def _left_over(stage: Stage, known: set[asyncio.Task[object]]) -> Counter[str]:
    """What is still there when the queue has been closed; the queue itself goes on."""
    await beat_twice(stage.queue)
    stats = await accounted(stage.queue)
    holding = sum(lease.state is LeaseState.HELD for lease in stage.held)
    await stage.queue.enqueue(["after"], lane="after")
    (one,) = await stage.queue.lease(lanes=["after"])
    await one.complete()
    await stage.queue.close()
    return +Counter(
        {
            "unaccounted for": abs(stats.unaccounted),
            "leased by nobody": abs(stats.leased - holding),
            "tasks left running": len(foreign_tasks(known)),
        }
    )


# --- the last verbs ------------------------------------------------------------------------------


@pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)
async def test_a_close_cancelled_at_every_await_can_be_finished(
    make_queue: MakeQueue, shows: Evidence
) -> None:
    running = leased = spent = 0
    async for stage, known in _cancelled_everywhere(make_queue, ENDINGS["close"], shows):
        await stage.queue.close()
        running += len(foreign_tasks(known))
        leased += (await accounted(stage.queue)).leased
        spent += sum(lease.attempts + lease.deaths for lease in await stage.queue.lease(9))
        await stage.queue.close()
    shows("F11", "tasks left running", running, exactly=0)
    shows("F11", "leased by nobody", leased, exactly=0)
    shows("F11", "attempts that a cancelled close has cost", spent, exactly=0)


@pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)
@pytest.mark.parametrize("who", ["itself", "another"])
async def test_a_forget_cancelled_at_every_await_can_be_finished(
    make_queue: MakeQueue, shows: Evidence, who: str
) -> None:
    neighbour = Stage(make_queue("fetch:neighbour"))
    await neighbour.set()
    running = left = 0
    async for stage, known in _cancelled_everywhere(make_queue, ENDINGS["forget"], shows):
        fresh = make_queue(stage.queue._namespace, store=stage.queue._store)
        await (stage.queue if who == "itself" else fresh).forget()
        left += await fresh.stats() != QueueStats()
        await fresh.enqueue(["anew"])
        assert await fresh.dequeue() == ["anew"]
        await fresh.close()
        with suppress(StoreLost):
            await stage.queue.close()
        running += len(foreign_tasks(known))
    shows("F11", "forgotten runs that something was left of", left, exactly=0)
    shows("F11", "tasks left running", running, exactly=0)
    changed = await accounted(neighbour.queue) != neighbour.before
    shows("F11", "runs beside them that were changed", int(changed), exactly=0)
