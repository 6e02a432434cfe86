"""Scripts on the Redis store, what goes wrong inside them, and waiting on lists."""

from __future__ import annotations

import asyncio

import pytest

from data_fetcher_core.errors import (
    ConfigurationError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLost,
    StoreUnavailable,
)
from tests.conftest import OpenRedis, StartRedis
from tests.redis_proxy import RedisProxy
from tests.servers import RedisServer

# --- scripts


async def test_a_script_runs_with_keys_and_arguments(
    each_redis: RedisServer, open_redis: OpenRedis
) -> None:
    store = open_redis(each_redis.url)
    source = "return {KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], #ARGV}"
    for _ in range(2):
        reply = await store.run_script(source, [b"\xff{a}", b"{a}"], [b"\x00", "é", 5])
        assert reply == [b"\xff{a}", b"{a}", b"\x00", "é".encode(), b"5", 3]


async def test_the_source_of_a_script_is_sent_once(
    redis_proxy: RedisProxy, open_redis: OpenRedis
) -> None:
    store = open_redis(redis_proxy.url)
    for _ in range(5):
        assert await store.run_script("return 'sent once'", [], []) == b"sent once"
    assert (redis_proxy.commands["EVALSHA"], redis_proxy.commands["EVAL"]) == (5, 1)


async def test_a_forgotten_script_is_not_noticed(
    each_redis: RedisServer, open_redis: OpenRedis
) -> None:
    store = open_redis(each_redis.url)
    with each_redis.client() as client:
        for number in range(1, 101):
            client.script_flush()
            count = await store.run_script("return redis.call('INCR', KEYS[1])", [b"n"], [])
            assert count == number


@pytest.mark.slow
async def test_scripts_survive_being_flushed_all_the_time(
    each_redis: RedisServer, open_redis: OpenRedis
) -> None:
    store = open_redis(each_redis.url)
    ran, done = 0, asyncio.Event()

    async def use() -> None:
        nonlocal ran
        while not done.is_set():
            await store.run_script("return redis.call('INCR', KEYS[1])", [b"n"], [])
            ran += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(use())
        with each_redis.client() as client:
            for _ in range(60):
                await asyncio.to_thread(client.script_flush)
                await asyncio.sleep(0.05)
        done.set()
    with each_redis.client() as client:
        assert int(client.get("n")) == ran > 60


SCRIPT_ERRORS = [
    ("return redis.call('LPUSH', KEYS[1], 'x')", StoreCorrupt, "WRONGTYPE"),
    ("return redis.pcall('LPUSH', KEYS[1], 'x')", StoreCorrupt, "WRONGTYPE"),
    ("local nothing; return nothing.field", StoreCorrupt, "attempt to index"),
    ("error('out of cheese')", StoreCorrupt, "out of cheese"),
    ("this is no script", StoreCorrupt, "compiling"),
    ("return redis.call('NOSUCHCOMMAND')", StoreCorrupt, "Unknown"),
    ("return redis.error_reply('DFC_LOST the run is gone')", StoreLost, "^the run is gone$"),
    ("return {err = 'DFC_CORRUPT a bad record'}", StoreCorrupt, "^a bad record$"),
    ("return redis.error_reply('DFC_LAYOUT made by v9')", ConfigurationError, "^made by v9$"),
]


@pytest.mark.parametrize(("source", "kind", "message"), SCRIPT_ERRORS)
async def test_errors_of_scripts(
    each_redis: RedisServer,
    open_redis: OpenRedis,
    source: str,
    kind: type[Exception],
    message: str,
) -> None:
    store = open_redis(each_redis.url)
    with each_redis.client() as client:
        client.set("text", "x")
    for _ in range(2):  # by EVAL, then by EVALSHA
        with pytest.raises(kind, match=message):
            await store.run_script(source, [b"text"], [])
    assert await store.run_script("return 'still here'", [], []) == b"still here"
    assert each_redis.connected_clients() == 1


# What a setting of the server does to a plain command and to one inside a script.
WRITE = "return redis.call('SET', KEYS[1], 'x')"
REFUSALS = [
    (["maxmemory 1"], StoreFull, "OOM.*maxmemory"),
    (["min-replicas-to-write 1"], StoreUnavailable, "NOREPLICAS"),
    (["replicaof 127.0.0.1 1"], StoreUnavailable, "READONLY|MASTERDOWN"),
    (["replicaof 127.0.0.1 1", "replica-serve-stale-data no"], StoreUnavailable, "MASTERDOWN"),
]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_servers_that_refuse_to_write(
    each_redis: RedisServer,
    start_redis: StartRedis,
    open_redis: OpenRedis,
    refusal: tuple[list[str], type[StoreError], str],
) -> None:
    settings, kind, message = refusal
    server = start_redis(each_redis.binary, **dict(line.split(" ", 1) for line in settings))
    store = open_redis(server.url)
    for step in (
        store.put("key", 1),
        store.run_script(WRITE, [b"key"], []),
        store.run_script(WRITE.replace("call", "pcall"), [b"key"], []),
    ):
        with pytest.raises(kind, match=message):
            await step


async def test_a_full_server_still_reads_and_deletes(
    each_redis: RedisServer, start_redis: StartRedis, open_redis: OpenRedis
) -> None:
    server = start_redis(each_redis.binary)
    store = open_redis(server.url)
    await store.put("old", 1)
    with server.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreFull):
            await store.put("new", 1)
        assert await store.get("old") == 1
        assert await store.range_get("") == [("old", 1)]
        assert await store.delete("old")
        client.config_set("maxmemory", 0)
    await store.put("new", 1)
    assert await store.range_get("") == [("new", 1)]


# --- waiting


async def test_blocking_takes_an_element(each_redis: RedisServer, open_redis: OpenRedis) -> None:
    store = open_redis(each_redis.url)
    assert await store.block_on([b"{a}1", b"{a}2"], 0.0) is None
    with each_redis.client() as client:
        client.rpush("{a}2", "x")
        assert await store.block_on([b"{a}1", b"{a}2"], -5) == b"{a}2"
        assert client.llen("{a}2") == 0


async def test_blocking_hears_a_push(redis_server: RedisServer, open_redis: OpenRedis) -> None:
    redis_server.flush()
    store = open_redis(redis_server.url)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(store.block_on([b"list"], 10))
        await store.run_script("return redis.call('RPUSH', KEYS[1], 'x')", [b"list"], [])
    assert waiting.result() == b"list"


async def test_blocking_holds_up_nobody(redis_server: RedisServer, open_redis: OpenRedis) -> None:
    """Though the store may open one connection only."""
    redis_server.flush()
    store = open_redis(redis_server.url, max_connections=1)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(store.block_on([b"list"], 10)) for _ in range(5)]
        await store.put("key", 1)
        assert await store.get("key") == 1
        await store.run_script("return redis.call('RPUSH', KEYS[1], 1, 2, 3, 4, 5)", [b"list"], [])
    assert [task.result() for task in waiting] == [b"list"] * 5


async def test_a_block_may_last_longer_than_an_operation(
    redis_url: str, open_redis: OpenRedis
) -> None:
    store = open_redis(redis_url, op_timeout=0.2)
    loop = asyncio.get_running_loop()
    start = loop.time()
    assert await store.block_on([b"list"], 0.6) is None
    assert 0.55 < loop.time() - start < 10.0
