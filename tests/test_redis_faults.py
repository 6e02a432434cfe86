"""What a bad network, a strange reply and a busy server do to the Redis store: no harm."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest
import redis

from data_fetcher_core.errors import (
    ConfigurationError,
    DataFetcherError,
    StoreCorrupt,
    StoreFull,
    StoreUnavailable,
)
from data_fetcher_core.kv_store.redis import RedisStore
from tests.conftest import OpenRedis, StartRedis
from tests.harness import PATIENCE, give_time
from tests.redis_proxy import (
    Action,
    RedisProxy,
    black_hole,
    cut_reply,
    delay,
    drop_reply,
    drop_request,
    inject,
    swallow_reply,
)
from tests.servers import RedisServer, open_files
from tests.waiting import failure_of, until

SLACK = 3
COUNT = "return redis.call('INCR', KEYS[1])"


def counted(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.get("n") or 0)


# --- a network that loses things


async def test_a_lost_request_is_not_sent_again(
    redis_proxy: RedisProxy, redis_server: RedisServer, open_redis: OpenRedis
) -> None:
    store = open_redis(redis_proxy.url)
    await store.run_script(COUNT, [b"n"], [])
    redis_proxy.fault(drop_request, command="EVALSHA")
    with pytest.raises(StoreUnavailable):
        await store.run_script(COUNT, [b"n"], [])
    assert counted(redis_server) == 1
    assert await store.run_script(COUNT, [b"n"], []) == 2


async def test_a_lost_reply_does_not_run_it_again(
    redis_proxy: RedisProxy, redis_server: RedisServer, open_redis: OpenRedis
) -> None:
    store = open_redis(redis_proxy.url)
    await store.run_script(COUNT, [b"n"], [])
    redis_proxy.fault(drop_reply, command="EVALSHA")
    with pytest.raises(StoreUnavailable):
        await store.run_script(COUNT, [b"n"], [])
    assert counted(redis_server) == 2
    assert redis_proxy.commands["EVALSHA"] == 2
    assert await store.run_script(COUNT, [b"n"], []) == 3


@pytest.mark.parametrize("size", range(13))
async def test_a_reply_that_breaks_off(
    redis_proxy: RedisProxy, redis_server: RedisServer, open_redis: OpenRedis, size: int
) -> None:
    """The whole reply is ``$7\\r\\n"value"\\r\\n``: 13 bytes."""
    store = open_redis(redis_proxy.url)
    await store.put("key", "value")
    redis_proxy.fault(cut_reply(size), command="GET")
    with pytest.raises(StoreUnavailable):
        await store.get("key")
    assert await store.get("key") == "value"
    assert redis_proxy.commands["GET"] == 2


@pytest.mark.parametrize("fault", [black_hole, swallow_reply])
@pytest.mark.parametrize("command", ["GET", "INFO", "EVALSHA"])
async def test_silence_ends_in_time(
    redis_proxy: RedisProxy, open_redis: OpenRedis, fault: Action, command: str
) -> None:
    store = open_redis(redis_proxy.url, op_timeout=0.3)
    redis_proxy.fault(fault, command=command)
    loop = asyncio.get_running_loop()
    start = loop.time()
    with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.3 s"):
        await (store.put("key", 1) if command == "EVALSHA" else store.get("key"))
    assert loop.time() - start < 0.3 * 1.1 * SLACK
    give_time(store, PATIENCE)
    assert await store.get("key", "nothing") in {"nothing", 1}


@pytest.mark.parametrize("direction", ["requests", "replies"])
async def test_a_black_hole_catches_every_connection_and_lets_go(
    redis_proxy: RedisProxy, open_redis: OpenRedis, direction: str
) -> None:
    store = open_redis(redis_proxy.url)
    await asyncio.gather(*(store.put(f"{n}", n) for n in range(10)))
    give_time(store, 0.5)
    redis_proxy.block(direction)
    loop = asyncio.get_running_loop()
    start = loop.time()
    steps = [store.get("1"), store.put("1", 1), store.delete("1"), store.range_get("")]
    failures = await asyncio.gather(*map(failure_of, steps))
    assert [type(failure) for failure in failures] == [StoreUnavailable] * 4
    assert loop.time() - start < 0.5 * 1.1 * SLACK
    redis_proxy.unblock()
    give_time(store, PATIENCE)
    for number in range(10):  # none of the old connections is tried, however many there were
        assert await store.get(f"{number}", number) == number


async def test_a_large_request_nobody_reads_leaves_no_socket_behind(
    start_redis: StartRedis, open_redis: OpenRedis
) -> None:
    server = start_redis()
    store = open_redis(server.url, op_timeout=0.3)
    await store.get("key")
    gc.collect()
    connected = open_files()
    server.freeze()
    try:
        with pytest.raises(StoreUnavailable):
            await store.put("key", "x" * 50_000_000)
        await until(lambda: open_files() < connected)
    finally:
        server.thaw()


async def test_byte_by_byte(redis_proxy: RedisProxy, open_redis: OpenRedis) -> None:
    redis_proxy.slice_size = 1
    store = open_redis(redis_proxy.url)
    await store.put("key", {"a": "é" * 50})
    assert await store.get("key") == {"a": "é" * 50}
    assert await store.range_get("") == [("key", {"a": "é" * 50})]


async def test_latency_is_not_mistaken_for_silence(
    redis_proxy: RedisProxy, open_redis: OpenRedis
) -> None:
    redis_proxy.fault(delay(request=0.01, reply=0.01), times=1000)
    store = open_redis(redis_proxy.url, op_timeout=2.0)
    await asyncio.gather(*(store.put(f"{n}", n) for n in range(20)))
    assert await asyncio.gather(*(store.get(f"{n}") for n in range(20))) == list(range(20))


# --- a server that says strange things

REPLIES: list[tuple[bytes, type[DataFetcherError], str]] = [
    (b"-LOADING Redis is loading the dataset in memory", StoreUnavailable, "LOADING"),
    (b"-CLUSTERDOWN Hash slot not served", StoreUnavailable, "CLUSTERDOWN"),
    (b"-TRYAGAIN Multiple keys request during rehashing", StoreUnavailable, "TRYAGAIN"),
    (b"-ERR Script attempted to access a non local key", StoreUnavailable, "slot"),
    (b"-MASTERDOWN Link with MASTER is down", StoreUnavailable, "MASTERDOWN"),
    (b"-READONLY You can't write against a read only replica.", StoreUnavailable, "READONLY"),
    (b"-NOREPLICAS Not enough good replicas to write.", StoreUnavailable, "NOREPLICAS"),
    (b"-MISCONF Errors writing to the AOF file: No space left", StoreUnavailable, "No space left"),
    (b"-UNBLOCKED force unblock from blocking operation", StoreUnavailable, "UNBLOCKED"),
    (b"-BUSY Redis is busy running a script.", StoreUnavailable, "BUSY"),
    (b"-ERR max number of clients reached", StoreUnavailable, "clients"),
    (b"-OOM command not allowed when used memory > 'maxmemory'.", StoreFull, "maxmemory"),
    (b"-WRONGTYPE Operation against a key", StoreCorrupt, "WRONGTYPE"),
    (b"-NOAUTH Authentication required.", ConfigurationError, "password"),
    (b"-WRONGPASS invalid username-password pair", ConfigurationError, "password"),
    (b"-NOPERM this user has no permissions", ConfigurationError, "ACL"),
    (b"-ERR ACL failure in script: User bob may not", ConfigurationError, "check user"),
    (b"-DENIED Redis is running in protected mode", ConfigurationError, "protected"),
    (b"-MOVED 3999 127.0.0.1:6381", ConfigurationError, r"redis\+cluster://"),
    (b"-ASK 3999 127.0.0.1:6381", ConfigurationError, r"redis\+cluster://"),
    (b"-ERR unknown command 'GET'", ConfigurationError, "unknown command"),
    (b"-ERR something nobody has heard of", StoreCorrupt, "nobody has heard of"),
    (b"-\xff\xfe garbled", StoreCorrupt, "garbled"),
    (b"HTTP/1.1 400 Bad Request", StoreUnavailable, "protocol"),
    (b"$-5", StoreUnavailable, "protocol"),
    (b"*2\r\n$zz", StoreUnavailable, "protocol"),
    (b"\x00\x01\x02", StoreUnavailable, "protocol"),
]


@pytest.mark.parametrize(("reply", "kind", "message"), REPLIES)
async def test_replies_are_understood(
    redis_proxy: RedisProxy,
    open_redis: OpenRedis,
    reply: bytes,
    kind: type[Exception],
    message: str,
) -> None:
    store = open_redis(redis_proxy.url)
    await store.put("key", 1)
    fault = redis_proxy.fault(inject(reply + b"\r\n"), command="GET")
    with pytest.raises(kind, match=message) as caught:
        await store.get("key")
    assert type(caught.value) is kind
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert (fault.hits, redis_proxy.commands["GET"]) == (1, 1)
    assert await store.get("key") == 1


@pytest.mark.parametrize("reply", [b"-NOAUTH Authentication required.", b"-LOADING wait", b"?"])
async def test_the_first_word_of_a_server_is_understood(
    redis_proxy: RedisProxy, open_redis: OpenRedis, reply: bytes
) -> None:
    store = open_redis(redis_proxy.url)
    redis_proxy.fault(inject(reply + b"\r\n"), command="INFO")
    with pytest.raises(ConfigurationError if b"NOAUTH" in reply else StoreUnavailable):
        await store.get("key")
    assert await store.get("key") is None


async def test_a_second_reply_to_one_request_is_nobodys(
    redis_proxy: RedisProxy, open_redis: OpenRedis
) -> None:
    store = open_redis(redis_proxy.url)
    await store.put("key", "right")
    redis_proxy.fault(inject(b'$5\r\n"one"\r\n$7\r\n"wrong"\r\n'), command="GET")
    assert await store.get("key") == "one"
    assert await store.get("key") == "right"


# --- a server that is busy


@pytest.mark.parametrize("patience", ["100", pytest.param("60000", marks=pytest.mark.slow)])
async def test_a_script_that_never_ends(
    each_redis: RedisServer, start_redis: StartRedis, open_redis: OpenRedis, patience: str
) -> None:
    """Told so (BUSY) after the server's patience is over, told nothing before."""
    server = start_redis(each_redis.binary, lua_time_limit=patience)
    store = open_redis(server.url)
    await store.put("key", 1)
    give_time(store, 0.5)
    blocker = threading.Thread(target=_run_for_ever, args=[server])
    blocker.start()
    try:
        await _until_unavailable(store)
        for step in (store.get("key"), store.put("key", 2), store.block_on([b"l"], 0.05)):
            start = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await step
            assert time.monotonic() - start < 0.55 * 1.1 * SLACK
    finally:
        if patience == "100":
            with server.client() as client:
                client.script_kill()
        else:  # a server that has not lost its patience does not listen to SCRIPT KILL either
            await asyncio.to_thread(server.restart)
        blocker.join(10)
    give_time(store, PATIENCE)
    async with asyncio.timeout(1.0 * SLACK):
        await store.put("key", 3)
        assert await store.get("key") == 3


def _run_for_ever(server: RedisServer) -> None:
    with server.client() as client, pytest.raises(redis.RedisError):
        client.eval("while true do end", 0)


async def _until_unavailable(store: RedisStore) -> None:
    async with asyncio.timeout(10):
        while await failure_of(store.get("key")) is None:
            pass
