"""Connections of the Redis store: when they open, whom they serve, and a server that leaves."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from data_fetcher_core.errors import (
    StoreUnavailable,
)
from data_fetcher_core.kv_store.redis import RedisStore
from tests.conftest import OpenRedis, StartRedis
from tests.servers import RedisServer, free_port, open_files
from tests.waiting import failure_of, until

# --- when connections open and close


def test_importing_the_package_does_not_import_redis() -> None:
    program = (
        "import sys, data_fetcher_core, data_fetcher_core.kv_store as stores\n"
        "stores.create_kv_store('memory')\n"
        "assert 'redis' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_a_new_store_connects_to_nothing() -> None:
    before = open_files()
    store = RedisStore("redis://127.0.0.1:1")
    assert open_files() == before
    asyncio.run(store.close())


async def test_close_lets_go_and_the_next_verb_connects_again(
    redis_server: RedisServer, open_redis: OpenRedis
) -> None:
    store = open_redis(redis_server.url)
    for _ in range(3):
        await asyncio.gather(*(store.put("key", 1) for _ in range(10)))
        assert redis_server.connected_clients() == 10
        await store.close()
        await until(lambda: redis_server.connected_clients() == 0)
    await store.close()


async def test_close_ends_what_is_under_way(
    redis_server: RedisServer, open_redis: OpenRedis
) -> None:
    store = open_redis(redis_server.url)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(failure_of(store.block_on([b"none"], 10)))
        await until(lambda: redis_server.connected_clients() == 1)
        with redis_server.client() as client:
            await until(lambda: int(client.info("clients")["blocked_clients"]) == 1)
        await store.close()
    assert isinstance(waiting.result(), StoreUnavailable)
    await until(lambda: redis_server.connected_clients() == 0)


async def test_connections_are_shared_up_to_a_limit(
    redis_server: RedisServer, open_redis: OpenRedis
) -> None:
    store = open_redis(redis_server.url, max_connections=3)
    await asyncio.gather(*(store.put(f"{n}", n) for n in range(200)))
    assert redis_server.connected_clients() == 3
    assert await asyncio.gather(*(store.get(f"{n}") for n in range(200))) == list(range(200))


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_it_serves_one_event_loop_after_another(redis_url: str, redis_server: RedisServer) -> None:
    store = RedisStore(redis_url)

    async def use(number: int) -> None:
        await asyncio.gather(*(store.put(f"{n}", number) for n in range(5)))
        assert await store.get("0") == number

    for number in range(5):
        asyncio.run(use(number))
    asyncio.run(store.close())
    gc.collect()
    asyncio.run(until(lambda: redis_server.connected_clients() == 0))


def test_it_serves_several_event_loops_at_once(redis_url: str, redis_server: RedisServer) -> None:
    store = RedisStore(redis_url)

    async def use(name: str) -> None:
        for number in range(200):
            await store.put(name, number)
            assert await store.get(name) == number
        await store.close()

    threads = [threading.Thread(target=asyncio.run, args=[use(f"{n}")]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [value for _, value in asyncio.run(_read_and_close(store))] == [199] * 4
    asyncio.run(until(lambda: redis_server.connected_clients() == 0))


async def _read_and_close(store: RedisStore) -> list[tuple[str, object]]:
    async with store:
        return await store.range_get("")


@pytest.mark.parametrize("child_loop", ["asyncio.new_event_loop()", "loop"])
def test_a_forked_child_connects_for_itself(redis_url: str, child_loop: str) -> None:
    """And leaves its parent's connection alone, even when it collects its garbage."""
    program = f"""
import asyncio, gc, os
from data_fetcher_core.kv_store.redis import RedisStore

store = RedisStore({redis_url!r})
loop = asyncio.new_event_loop()

def connection(loop):
    return loop.run_until_complete(asyncio.wait_for(store._execute(["CLIENT", "ID"], b""), 5))

before = connection(loop)
if (child := os.fork()) == 0:
    own_loop = {child_loop}
    assert connection(own_loop) != before
    own_loop.run_until_complete(store.close())
    gc.collect()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert connection(loop) == before
loop.run_until_complete(store.close())
loop.close()
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=30)


async def test_a_unix_socket_is_an_address(
    start_redis: StartRedis, open_redis: OpenRedis, tmp_path: Path
) -> None:
    start_redis(unixsocket=f"{tmp_path}/s")
    store = open_redis(f"unix://{tmp_path}/s?db=3")
    await store.put("key", 1)
    assert await store.get("key") == 1
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await open_redis(f"unix://{tmp_path}/nowhere").get("key")


# --- a server that goes away


async def test_nobody_listens(open_redis: OpenRedis) -> None:
    store = open_redis(f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1"):
        await store.get("key")


async def test_a_restarted_server_is_found_again(
    start_redis: StartRedis, open_redis: OpenRedis
) -> None:
    server = start_redis(appendonly="yes", appendfsync="always")
    store = open_redis(server.url)
    await asyncio.gather(*(store.put(f"{n}", n) for n in range(8)))
    for _ in range(2):
        await asyncio.to_thread(server.restart)
        # The loop has seen the old connections end: none of them is tried.
        assert [value for _, value in await store.range_get("")] == list(range(8))
        assert await asyncio.gather(*(store.get(f"{n}") for n in range(8))) == list(range(8))


async def test_a_server_killed_under_a_command(
    start_redis: StartRedis, open_redis: OpenRedis
) -> None:
    server = start_redis()
    store = open_redis(server.url)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(failure_of(store.block_on([b"none"], 10)))
        await until(lambda: server.connected_clients() == 1)
        await asyncio.to_thread(server.kill)
    assert isinstance(waiting.result(), StoreUnavailable)
    with pytest.raises(StoreUnavailable):
        await store.get("key")
    await asyncio.to_thread(server.start)
    assert await store.get("key") is None


async def test_a_demoted_server_is_asked_for_its_name_again(
    start_redis: StartRedis, open_redis: OpenRedis
) -> None:
    server = start_redis()
    store = open_redis(server.url)
    await asyncio.gather(*(store.put(f"{n}", n) for n in range(8)))
    assert server.connected_clients() == 8
    with server.client() as client:
        client.replicaof("127.0.0.1", 1)
        with pytest.raises(StoreUnavailable, match="READONLY"):
            await store.put("key", 1)
        await until(lambda: server.connected_clients() <= 1)
        client.replicaof("NO", "ONE")
    await store.put("key", 1)
