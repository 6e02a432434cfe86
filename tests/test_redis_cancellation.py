"""A call that is cancelled or timed out leaves no reply for the next one, and nothing open."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.kv_store.redis import RedisStore
from tests.conftest import OpenRedis, StartRedis
from tests.evidence import Evidence
from tests.harness import CancelAt, in_use
from tests.redis_proxy import Exchange, RedisProxy
from tests.servers import RedisServer, open_files
from tests.waiting import until

Verb = Callable[[RedisStore, int], Coroutine[Any, Any, Any]]
ECHO = "return ARGV[1]"
AT_ONCE = 20
VERBS: dict[str, Verb] = {
    "get": lambda store, n: store.get(f"{n}"),
    "exists": lambda store, n: store.exists(f"{n}"),
    "put": lambda store, n: store.put(f"{n}", n),
    "delete": lambda store, n: store.delete(f"gone{n}"),
    "range_get": lambda store, n: store.range_get(f"{n}", limit=1),
    "run_script": lambda store, n: store.run_script(ECHO, [], [n]),
    "block_on": lambda store, n: store.block_on([b"never"], 0.05),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "connected"])
async def test_cancelled_at_every_suspension(
    redis_server: RedisServer, open_redis: OpenRedis, shows: Evidence, verb: str, fresh: bool
) -> None:
    redis_server.flush()
    store = open_redis(redis_server.url)
    await store.put("1", 1)
    for nth in range(1, 100):
        if fresh:
            await store.close()
        work = CancelAt(VERBS[verb](store, 1), nth)
        task = asyncio.ensure_future(_finish(work))
        await asyncio.wait([task])
        assert task.cancelled() == work.reached
        assert await store.get("1") == 1
        assert await store.run_script(ECHO, [], [nth]) == b"%d" % nth
        if not work.reached:
            break
    else:
        pytest.fail("the verb never came to its end")
    shows("F11", "connections of the store in use afterwards", in_use(store), exactly=0)
    await until(lambda: redis_server.connected_clients() == 1)
    shows("F11", "clients on the server", redis_server.connected_clients(), exactly=1)


async def _finish(work: Awaitable[Any]) -> Any:
    return await work


async def test_no_reply_reaches_another_caller(
    redis_proxy: RedisProxy, open_redis: OpenRedis, shows: Evidence
) -> None:
    """A thousand cancelled calls over a slow network, each asking for something of its own."""
    dice = random.Random(1)

    async def dawdle(exchange: Exchange) -> None:
        await asyncio.sleep(dice.uniform(0, 0.002))
        await exchange.forward()
        reply = await exchange.reply()
        await asyncio.sleep(dice.uniform(0, 0.002))
        await exchange.send(reply)

    store = open_redis(redis_proxy.url)
    for n in range(50):
        await store.put(f"{n}", n)
    redis_proxy.fault(dawdle, times=float("inf"))
    cancelled = answered = mixed_up = 0
    while cancelled < 1000:
        tasks = {n: asyncio.ensure_future(_ask(store, n)) for n in range(50)}
        for n in dice.sample(range(50), 40):
            await asyncio.sleep(dice.uniform(0, 0.0003))
            tasks[n].cancel()
        await asyncio.wait(tasks.values())
        for n, task in tasks.items():
            cancelled += task.cancelled()
            if not task.cancelled():
                answered += 1
                mixed_up += task.result() != (n, b"%d" % n, [(f"{n}", n)])
    shows("F12", "calls cancelled", cancelled, at_least=1000)
    shows("F12", "calls answered in between", answered, at_least=100)
    shows("F12", "replies that reached another caller", mixed_up, exactly=0)


async def _ask(store: RedisStore, n: int) -> tuple[Any, Any, Any]:
    value = await store.get(f"{n}")
    echo = await store.run_script(ECHO, [], [n])
    return value, echo, await store.range_get(f"{n}", limit=1)


async def _use_all(store: RedisStore) -> None:
    """As many connections as there are calls at once: afterwards all of them are there, unused."""
    await asyncio.gather(*(store.get(f"{n}") for n in range(AT_ONCE)))


async def _cancel_many(store: RedisStore, times: int) -> int:
    """Until so many were really cancelled; how many that were."""
    dice, cancelled = random.Random(2), 0
    verbs = list(VERBS.values())
    for start in itertools.count(step=AT_ONCE):
        tasks = [asyncio.ensure_future(dice.choice(verbs)(store, n)) for n in range(AT_ONCE)]
        await asyncio.sleep(dice.choice([0, 0, 0.0005, 0.001]))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert await store.run_script(ECHO, [], [start]) == b"%d" % start
        cancelled += sum(task.cancelled() for task in tasks)
        if cancelled >= times:
            break
    return cancelled


@pytest.mark.parametrize("times", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_cancelled_calls_leave_nothing_open(
    redis_server: RedisServer, open_redis: OpenRedis, shows: Evidence, times: int
) -> None:
    redis_server.flush()
    store = open_redis(redis_server.url)
    await _use_all(store)
    files, clients = _open_now(), redis_server.connected_clients()
    assert clients >= AT_ONCE
    cancelled = await _cancel_many(store, times)
    await _use_all(store)
    await until(lambda: abs(redis_server.connected_clients() - clients) <= 2)
    await until(lambda: abs(open_files() - files) <= 2)
    _show_what_is_open(shows, redis_server, files, clients)
    shows("F13", "calls cancelled", cancelled, at_least=times)


def _open_now() -> int:
    """Files that others before us left open, to be closed by chance, are none that we count."""
    gc.collect()
    return open_files()


def _show_what_is_open(shows: Evidence, server: RedisServer, files: int, clients: int) -> None:
    shows("F13", "files more or fewer open", abs(open_files() - files), at_most=2)
    shows("F13", "clients more or fewer", abs(server.connected_clients() - clients), at_most=2)


@pytest.mark.parametrize("times", [400, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_timed_out_calls_leave_nothing_open(
    start_redis: StartRedis, open_redis: OpenRedis, shows: Evidence, times: int
) -> None:
    server = start_redis()
    store = open_redis(server.url, op_timeout=0.05, max_connections=1000)
    await _until_it_works(store)
    files, clients = _open_now(), server.connected_clients()
    timed_out = 0
    while timed_out < times:
        server.freeze()
        calls = [store.get(f"{n}") for n in range(100)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        timed_out += sum(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
        server.thaw()
        await _until_it_works(store)
    await until(lambda: abs(server.connected_clients() - clients) <= 2)
    await until(lambda: abs(open_files() - files) <= 2)
    _show_what_is_open(shows, server, files, clients)
    shows("F13", "calls timed out", timed_out, at_least=times)


async def _until_it_works(store: RedisStore) -> None:
    async with asyncio.timeout(10):
        while True:
            with suppress(StoreUnavailable):
                await store.get("warm")
                return


async def test_waiting_for_a_connection_is_part_of_the_time(
    start_redis: StartRedis, open_redis: OpenRedis
) -> None:
    server = start_redis()
    store = open_redis(server.url, op_timeout=0.3, max_connections=1)
    await _until_it_works(store)
    server.freeze()
    try:
        start = asyncio.get_running_loop().time()
        calls = [store.get(f"{n}") for n in range(10)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
        assert asyncio.get_running_loop().time() - start < 0.3 * 1.1 + 2.0, "or 3 s"
    finally:
        server.thaw()


async def test_a_cancelled_wait_takes_nothing_later(
    redis_server: RedisServer, open_redis: OpenRedis
) -> None:
    redis_server.flush()
    store = open_redis(redis_server.url)
    with redis_server.client() as client:
        for _ in range(20):
            waiting = asyncio.ensure_future(store.block_on([b"list"], 10))
            await until(lambda: int(client.info("clients")["blocked_clients"]) == 1)
            waiting.cancel()
            await asyncio.wait([waiting])
            await until(lambda: int(client.info("clients")["blocked_clients"]) == 0)
            client.rpush("list", "x")
            assert client.llen("list") == 1
            assert await store.block_on([b"list"], 1) == b"list"
