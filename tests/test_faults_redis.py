"""A queue on a Redis that forgets its scripts, is full, evicts, or is busy with something else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import redis

from data_fetcher_core.errors import ConfigurationError, StoreFull
from data_fetcher_core.kv_store.redis.checks import judge
from data_fetcher_core.queue import KVStoreQueue, Lease
from data_fetcher_core.testing import ManualClock
from tests.conftest import StartRedis
from tests.evidence import Evidence
from tests.fault_support import Ledger, bounded, open_run
from tests.harness import accounted, crash, places, silence
from tests.servers import RedisServer

__all__ = ["bounded"]

# Bounds in time have three times the slack that the promise has.
SLACK = 3
REFUSED = "ConfigurationError"


# --- a server that forgets the scripts -----------------------------------------------------------


async def test_scripts_that_are_flushed_all_the_time_are_not_noticed(
    each_redis: RedisServer, shows: Evidence
) -> None:
    ledger = Ledger()
    async with open_run(each_redis.url) as queue:
        before = time.monotonic()
        with _flushing(each_redis) as flushes:
            await asyncio.gather(*(_send_and_work(queue, ledger, n) for n in range(8)))
            await queue.sweep()
            await queue.cancel(["nobody"])
        rate = len(flushes) / (time.monotonic() - before)
        missing = _errors_told(each_redis, "NOSCRIPT")
        await ledger.balance(queue)
    shows("F8", "scripts flushed", rate, at_least=10, unit="a second")
    shows("F8", "scripts found missing (or nothing was tried)", missing, at_least=10)
    # Any error would have ended it.
    shows("F8", "requests sent and completed meanwhile", len(ledger.completed), exactly=8 * 40)


async def _send_and_work(queue: KVStoreQueue, ledger: Ledger, worker: int) -> None:
    for turn in range(20):
        await ledger.enqueue(queue, [f"{worker}-{turn}"], lane=f"lane{worker}")
        for lease in await queue.lease(lanes=[f"lane{worker}"]):
            await ledger.complete(lease, [f"{lease.item}-child"])
        for lease in await queue.lease(lanes=[f"lane{worker}"]):
            await ledger.complete(lease)


@contextmanager
def _flushing(server: RedisServer) -> Iterator[list[float]]:
    """In a thread: the asynchronous client may swallow the cancellation that would end it."""
    flushes: list[float] = []
    over = threading.Event()

    def flush() -> None:
        with server.client() as client:
            client.config_resetstat()
            while not over.wait(0.003):
                client.script_flush()
                flushes.append(time.monotonic())

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        yield flushes
    finally:
        over.set()
        thread.join()


def _errors_told(server: RedisServer, code: str) -> int:
    with server.client() as client:
        told = client.info("errorstats").get(f"errorstat_{code}", {"count": 0})
    return int(told["count"])


# --- a server that is full -----------------------------------------------------------------------


@asynccontextmanager
async def _full(server: RedisServer) -> AsyncIterator[None]:
    """No memory is left, until the end."""
    with server.client() as client:
        client.config_set("maxmemory", "1")
    try:
        yield
    finally:
        with server.client() as client:
            client.config_set("maxmemory", "0")


SETTLEMENTS: dict[str, Callable[[Lease], Awaitable[object]]] = {
    "complete": lambda lease: lease.complete(),
    "complete with a result": lambda lease: lease.complete(result={"size": "x" * 1000}),
    "complete with a checkpoint": lambda lease: lease.complete(checkpoint={"page": 7}),
    "release": lambda lease: lease.release(error="again"),
    "release for later": lambda lease: lease.release(delay=60.0, error="later"),
    "bury": lambda lease: lease.bury("gone"),
    "give back": lambda lease: lease.give_back(),
}


async def test_a_full_server_still_settles(
    each_redis: RedisServer, start_redis: StartRedis, shows: Evidence
) -> None:
    server, settled = start_redis(each_redis.binary), 0
    async with open_run(server.url) as queue:
        await queue.enqueue(list(SETTLEMENTS))
        leases = await queue.lease(len(SETTLEMENTS))
        async with _full(server):
            for lease in leases:
                with pytest.raises(StoreFull):
                    await queue.enqueue(["new"])
                await SETTLEMENTS[lease.item](lease)
                await accounted(queue)
                settled += 1
        assert await places(queue) == {"ready": 2, "delayed": 1, "dead": 1}
        assert await queue.checkpoint("page") == 7
        taken = await queue.enqueue(["new"])
    shows("F34", "settlements refused", len(leases) - settled, exactly=0)
    shows("F34", "new requests that told StoreFull", settled, exactly=len(SETTLEMENTS))
    shows("F34", "new requests taken once there is room", int(taken), exactly=1)


async def test_a_full_server_refuses_what_is_new_and_nothing_else(
    each_redis: RedisServer, start_redis: StartRedis
) -> None:
    server = start_redis(each_redis.binary)
    async with open_run(server.url) as queue:
        await queue.enqueue([f"{n}" for n in range(10)])
        await queue.enqueue(["late"], delay=0.001)
        async with _full(server):
            with pytest.raises(StoreFull) as refused:
                await queue.enqueue([f"new{n}" for n in range(2500)])
            assert refused.value.accepted == 0
            async with open_run(server.url) as newcomer:
                (lease,) = await newcomer.lease()
                assert lease.item == "0"
            assert await queue.cancel([(await queue.lease())[0].id]) == 1
            await queue.shut("lane", 60.0)
            await queue.sweep()
            assert await queue.checkpoint("none") is None
            assert len(await queue.peek(100)) == 10
        assert await queue.enqueue(["new"]) == 1
        await accounted(queue)


async def test_a_full_server_lets_the_dead_return(
    each_redis: RedisServer, start_redis: StartRedis
) -> None:
    """A request that is requeued is not a new one."""
    server = start_redis(each_redis.binary)
    async with open_run(server.url) as queue:
        await queue.enqueue(["dead"])
        for lease in await queue.lease():
            await lease.bury()
        async with _full(server):
            assert await queue.requeue() == 1
        assert await places(queue) == {"ready": 1}


async def test_a_full_server_keeps_a_page_whose_links_it_cannot_take(
    each_redis: RedisServer, start_redis: StartRedis
) -> None:
    server, ledger = start_redis(each_redis.binary), Ledger()
    async with open_run(server.url) as queue:
        await ledger.enqueue(queue, ["page", "other"])
        page, other = await queue.lease(2)
        async with _full(server):
            # Both are sent together; each has an outcome of its own.
            outcomes = await asyncio.gather(
                ledger.complete(page, ["link"]), ledger.complete(other), return_exceptions=True
            )
            assert isinstance(outcomes[0], StoreFull)
            assert outcomes[1] is None
            assert await places(queue) == {"leased": 1}
            with pytest.raises(StoreFull):
                await ledger.complete(page, ["link"])
        await ledger.complete(page, ["link"])
        await ledger.balance(queue)


async def test_a_full_server_costs_no_lease(
    each_redis: RedisServer, start_redis: StartRedis, clock: ManualClock, shows: Evidence
) -> None:
    """Hearts beat on, the dead are reaped, and nobody else is."""
    server, ledger = start_redis(each_redis.binary), Ledger()
    async with (
        open_run(server.url, clock=clock) as alive,
        open_run(server.url, clock=clock) as other,
        open_run(server.url, clock=clock) as dying,
    ):
        await ledger.enqueue(alive, ["held", "orphan"])
        (held,) = await alive.lease()
        (orphan,) = await dying.lease()
        await crash(dying)
        async with _full(server):
            for _ in range(10):
                await alive.sweep()
                await silence(other, clock, 6.0)
            assert await places(other) == {"leased": 1, "ready": 1}
            (taken_up,) = await other.lease()
            assert (taken_up.id, taken_up.deaths) == (orphan.id, 1)
            await ledger.complete(taken_up)
            await ledger.complete(held)
        await ledger.balance(other)
    shows("F34", "leases of the living that expired in 60 s", 2 - len(ledger.completed), exactly=0)


async def test_a_queue_that_fills_its_server_goes_on_by_itself(
    each_redis: RedisServer, start_redis: StartRedis, shows: Evidence
) -> None:
    server, ledger = start_redis(each_redis.binary), Ledger()
    async with open_run(server.url, compress_over=0) as queue:
        # Much more than the memory of its Lua, which grows meanwhile, and shrinks when it likes.
        _leave_room(server, 2_500_000)
        steps = await _fill(queue, ledger)
        assert steps >= 2
        assert len(ledger.sent) == (await queue.stats()).enqueued == steps * 50
        for lease in await queue.lease(steps * 50 - 10):
            await ledger.complete(lease)
        await ledger.enqueue(queue, ["after"])
        await ledger.balance(queue)
    shows("F34", "filled, then worked off: taken in again", "after" in ledger.sent, exactly=True)


async def _fill(queue: KVStoreQueue, ledger: Ledger) -> int:
    for step in range(200):
        try:
            await ledger.enqueue(queue, [f"{step}-{n}-{'x' * 200}" for n in range(50)])
        except StoreFull:
            return step
    pytest.fail("the server never had enough")


def _leave_room(server: RedisServer, size: int) -> None:
    with server.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + size)


# --- a server that evicts ------------------------------------------------------------------------


async def test_a_server_that_evicts_gets_no_queue(
    each_redis: RedisServer, start_redis: StartRedis, shows: Evidence
) -> None:
    server = start_redis(each_redis.binary, maxmemory_policy="allkeys-lru")
    with server.client() as client:
        for policy in ("allkeys-random", "allkeys-lfu", "allkeys-lru"):
            client.config_set("maxmemory-policy", policy)
            with pytest.raises(ConfigurationError, match="maxmemory-policy noeviction") as told:
                await open_run(server.url).__aenter__()
            shows("F35", f"{policy}: refused", type(told.value).__name__, exactly=REFUSED)
        shows("F35", "keys written", client.dbsize(), exactly=0)
        client.config_set("maxmemory-policy", "noeviction")
    async with open_run(server.url) as queue:
        assert await queue.enqueue(["now"]) == 1


def test_a_server_that_is_loading_is_not_judged() -> None:
    """Redis 7 says that it keeps no append-only file for as long as it reads it."""
    assert judge({"redis_version": "7.0.15", "loading": "1", "aof_enabled": "0"}) == []


# --- a server that is busy -----------------------------------------------------------------------


async def test_a_script_of_somebody_else_is_waited_out(
    each_redis: RedisServer, start_redis: StartRedis, shows: Evidence
) -> None:
    server, ledger = start_redis(each_redis.binary, lua_time_limit="20"), Ledger()
    async with open_run(server.url) as queue:
        await ledger.enqueue(queue, [f"{n}" for n in range(4)])
        held = await queue.lease(2)
        with _endless_script(server) as end:
            leasing = asyncio.ensure_future(queue.lease())
            waiting = asyncio.gather(
                ledger.enqueue(queue, ["new"]),
                *(ledger.complete(lease) for lease in held),
                queue.sweep(),
                queue.stats(),
            )
            await asyncio.sleep(0.5)
            assert not waiting.done()
            end()
            resumed = time.monotonic()
            await waiting
            taken = await leasing
        took, asked = time.monotonic() - resumed, _errors_told(server, "BUSY")
        shows("F37", "work goes on after SCRIPT KILL", took, at_most=1.0 * SLACK, unit="s")
        # Each of the five asks again after a pause that grows, not as fast as it can.
        shows("F37", "times that five callers asked a busy server", asked, at_most=5 * 40)
        assert asked >= 5
        for lease in taken:
            await ledger.complete(lease)
        await ledger.balance(queue)


@contextmanager
def _endless_script(server: RedisServer) -> Iterator[Callable[[], None]]:
    """Another client's script runs until what is yielded is called, or the end."""

    def run() -> None:
        with server.client() as client, pytest.raises(redis.RedisError):
            client.eval("while true do end", 0)

    def kill() -> None:
        with server.client() as client:
            client.script_kill()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        while not _is_busy(server):
            time.sleep(0.01)
        yield kill
    finally:
        if _is_busy(server):
            kill()
        thread.join()


def _is_busy(server: RedisServer) -> bool:
    with server.client() as client:
        try:
            client.get("anything")
        except redis.RedisError as error:
            return "busy" in str(error).lower()
    return False


async def test_no_step_is_larger_than_a_thousand(
    redis_server: RedisServer, redis_url: str, shows: Evidence
) -> None:
    ledger = Ledger()
    async with open_run(redis_url) as queue:
        with redis_server.client() as client:
            client.config_resetstat()
        await ledger.enqueue(queue, (f"{n}" for n in range(2_500)))
        leases = await queue.lease(10**9)
        shows("F37", "leased at once of 10^9 asked for", len(leases), exactly=1_000)
        with redis_server.client() as client:
            stats = client.info("commandstats")
        scripts = [stats.get(f"cmdstat_{name}", {"calls": 0}) for name in ("eval", "evalsha")]
        assert sum(script["calls"] for script in scripts) >= 4
        for lease in leases:
            await lease.give_back()
        await ledger.balance(queue)
