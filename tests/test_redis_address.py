"""Redis URLs, what is asked of a server before it is used, and secrets that stay secret."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest

from data_fetcher_core.errors import ConfigurationError, DataFetcherError
from data_fetcher_core.kv_store.redis import RedisStore
from data_fetcher_core.kv_store.redis.address import parse_address
from data_fetcher_core.kv_store.redis.checks import judge, read_info
from tests.conftest import OpenRedis, StartRedis
from tests.redis_proxy import RedisProxy, black_hole, drop_reply, inject
from tests.servers import RedisServer, free_port

CANARY = "s3cr3t-c4n4ry"

# --- reading a URL


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis://", "redis://localhost:6379/0"),
        ("redis://host", "redis://host:6379/0"),
        ("REDIS://host/", "redis://host:6379/0"),
        ("redis://host:1234/5", "redis://host:1234/5"),
        ("redis://host?db=5", "redis://host:6379/5"),
        ("redis://[::1]:7000", "redis://[::1]:7000/0"),
        ("redis://user:p%40ss@host", "redis://host:6379/0"),
        ("redis://:p%2Fss@host", "redis://host:6379/0"),
        ("rediss://host?ssl_ca_certs=/ca.pem", "rediss://host:6379/0"),
        ("redis+cluster://a,b:7000,[::1]", "redis+cluster://a:6379,b:7000,[::1]:6379"),
        ("redis+cluster://[::1]:7000,[::2]", "redis+cluster://[::1]:7000,[::2]:6379"),
        ("redis://host\n", "redis://host:6379/0"),
        ("rediss+cluster://a", "rediss+cluster://a:6379"),
        ("unix:///run/redis.sock?db=2&password=x", "unix:///run/redis.sock?db=2"),
    ],
)
def test_urls_that_can_be(url: str, text: str) -> None:
    assert str(parse_address(url)) == text
    assert repr(RedisStore(url)) == f"RedisStore({text!r}, key_prefix='')"


def test_credentials_are_read() -> None:
    address = parse_address("redis://us%3Aer:p%40s%3A%2Fs@host")
    assert (address.username, address.password) == ("us:er", "p@s:/s")
    address = parse_address("redis://:p[x@host")
    assert (address.username, address.password) == (None, "p[x")
    address = parse_address("redis://host", password="p")
    assert (address.username, address.password) == (None, "p")
    address = parse_address("unix:///s?username=u&password=p%26q")
    assert (address.username, address.password) == ("u", "p&q")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "no scheme"),
        ("localhost:6379", "no scheme"),
        ("http://host", "'http' is no scheme"),
        ("redis://host:port", "'host:…'.*number"),
        ("redis://host:70000", "65535"),
        ("redis://host:0", "port 0"),
        ("redis://[::1", "where host:port should be"),
        ("redis://[one]", "where host:port should be"),
        ("redis+cluster://a,b:7000,[::1", "where host:port should be"),
        ("redis://host/first", "'first'"),
        ("redis://host/-1", "'-1'"),
        ("redis://host?db=x", "'x'"),
        ("redis://a,b", r"redis\+cluster://a,b,c"),
        ("redis+cluster://host/3", "database 0 only"),
        ("redis://host?socket_timeout=3", "'socket_timeout'.*op_timeout"),
        ("redis://host?ssl_ca_certs=/ca", "'ssl_ca_certs'"),
        ("rediss://host?ssl_cert_reqs=none", "always verified"),
        ("rediss://host?ssl_check_hostname=maybe", "'maybe'"),
        ("unix://", "path of a socket"),
        (f"redis://:{CANARY}@host?password={CANARY}", "twice"),
        (f"redis://:{CANARY}/x@host", "percent-encode"),
        (f"redis://:{CANARY}?x@host", "percent-encode"),
        (f"redis://:{CANARY}#x@host", "percent-encode"),
    ],
)
def test_urls_that_cannot_be(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        RedisStore(url)
    assert CANARY not in everything_said(caught.value)


def test_other_settings_that_cannot_be() -> None:
    with pytest.raises(ConfigurationError, match="string"):
        RedisStore(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="twice"):
        RedisStore("redis://:a@host", password="b")
    for timeout in (0, -1, float("nan"), float("inf"), True, "5"):
        with pytest.raises(ConfigurationError, match="op_timeout"):
            RedisStore("redis://host", op_timeout=timeout)  # type: ignore[arg-type]
    for count in (0, 1.5, True):
        with pytest.raises(ConfigurationError, match="max_connections"):
            RedisStore("redis://host", max_connections=count)  # type: ignore[arg-type]


# --- what a server must be


def info(**fields: str) -> dict[str, str]:
    usual = {"redis_version": "7.0.15", "maxmemory_policy": "noeviction", "aof_enabled": "1"}
    return usual | fields


def test_info_is_read() -> None:
    read = read_info(b"# Server\r\nredis_version:6.2.14\r\nos:a:b\r\n\r\n# Memory\r\nx:\xff\r\n")
    assert (read["redis_version"], read["os"]) == ("6.2.14", "a:b")


@pytest.mark.parametrize("version", ["6.2.0", "7.0.15", "7.2", "8.0-rc1", "10.1", "", "unstable"])
def test_versions_that_will_do(version: str) -> None:
    assert judge(info(redis_version=version)) == []


@pytest.mark.parametrize("name", ["redis_mode", "server_mode"])
def test_a_sentinel_is_no_store(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"redis\+sentinel://"):
        judge(info(**{name: "sentinel"}))


@pytest.mark.parametrize("version", ["2.8.24", "5.0.7", "6.0.16"])
def test_versions_that_are_too_old(version: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{version}.*6.2"):
        judge(info(redis_version=version))


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
async def test_a_server_that_evicts_is_refused(
    start_redis: StartRedis, open_redis: OpenRedis, policy: str
) -> None:
    """Also while it has no limit: that is one CONFIG SET away. And it is taken once mended."""
    server = start_redis(maxmemory_policy=policy)
    store = open_redis(server.url)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=f"{policy}.*CONFIG SET maxmemory-policy"):
            await store.put("key", 1)
    with server.client() as client:
        assert client.dbsize() == 0
        client.config_set("maxmemory-policy", "noeviction")
    await store.put("key", 1)


async def test_a_server_that_evicts_only_what_expires_is_warned_about(
    start_redis: StartRedis, open_redis: OpenRedis, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_redis(maxmemory_policy="volatile-lru", appendonly="yes")
    store = open_redis(server.url)
    await store.put("key", 1)
    assert ["volatile-lru" in record.message for record in caplog.records] == [True]


async def test_no_append_only_file_is_warned_about_once(
    redis_url: str, open_redis: OpenRedis, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_redis(redis_url)
    for _ in range(3):
        await store.put("key", 1)
        await store.close()
    assert ["appendonly yes" in record.message for record in caplog.records] == [True]


async def test_a_user_who_may_not_ask(
    start_redis: StartRedis, open_redis: OpenRedis, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_redis()
    with server.client() as client:
        client.execute_command("ACL SETUSER bob on >pw ~* +@all -info")
    store = open_redis(f"redis://bob:pw@127.0.0.1:{server.port}")
    await store.put("key", 1)
    assert ["INFO is barred" in record.message for record in caplog.records] == [True]


# --- who may come in, and what is never said


def everything_said(error: BaseException) -> str:
    """By the error, its attributes, and every error behind it."""
    said = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
    behind = [error.__cause__, error.__context__]
    return said + "".join(everything_said(other) for other in behind if other is not None)


async def test_wrong_passwords_are_the_callers_mistake(
    each_redis: RedisServer, start_redis: StartRedis, open_redis: OpenRedis
) -> None:
    server = start_redis(each_redis.binary, requirepass="right")
    where = f"127.0.0.1:{server.port}"
    for url in (f"redis://{where}", f"redis://:wrong@{where}", f"redis://nobody:right@{where}"):
        with pytest.raises(ConfigurationError, match="check user, password"):
            await open_redis(url).get("key")
    assert await open_redis(server.url).get("key") is None
    assert await open_redis(f"redis://{where}", password="right").get("key") is None


async def test_missing_permissions_are_the_callers_mistake(
    each_redis: RedisServer, start_redis: StartRedis, open_redis: OpenRedis
) -> None:
    server = start_redis(each_redis.binary)
    with server.client() as client:
        client.execute_command("ACL SETUSER bob on >pw ~mine* +@all -set")
    store = open_redis(f"redis://bob:pw@127.0.0.1:{server.port}", key_prefix="mine")
    for step in (
        store.put("key", 1),  # inside a script
        open_redis(f"redis://bob:pw@127.0.0.1:{server.port}").get("key"),
    ):
        with pytest.raises(ConfigurationError, match="ACL"):
            await step


async def test_a_database_that_is_not_there(each_redis: RedisServer, open_redis: OpenRedis) -> None:
    with pytest.raises(ConfigurationError, match="out of range"):
        await open_redis(f"redis://127.0.0.1:{each_redis.port}/99").get("key")


@pytest.mark.parametrize("how", ["url", "parameter", "query"])
@pytest.mark.parametrize(
    "failure", ["refused", "wrong", "unknown", "silence", "lost", "garbage", "echo", "corrupt"]
)
async def test_the_password_is_never_told(
    start_redis: StartRedis,
    open_redis: OpenRedis,
    caplog: pytest.LogCaptureFixture,
    how: str,
    failure: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    options = {"wrong": {"requirepass": "other"}, "unknown": {"rename_command": 'AUTH ""'}}
    server = start_redis(**options.get(failure, {"requirepass": CANARY}))
    async with RedisProxy(server.port) as proxy:
        faults: dict[str, Any] = {
            "silence": black_hole,
            "lost": drop_reply,
            "garbage": inject(f"{CANARY}\r\n".encode()),
            "echo": inject(f"-ERR what is {CANARY}?\r\n".encode()),
            "corrupt": inject(f"-WRONGTYPE {CANARY}\r\n".encode()),
        }
        if failure in faults:
            proxy.fault(faults[failure], command="GET")
        port = free_port() if failure == "refused" else proxy.port
        store = _store_with_canary(open_redis, how, port)
        with pytest.raises(DataFetcherError) as caught:
            await store.get("key")
        assert CANARY not in everything_said(caught.value)
        assert CANARY not in repr(store) + caplog.text
        assert caught.value.__cause__ is caught.value.__context__ is None


def _store_with_canary(open_redis: OpenRedis, how: str, port: int) -> RedisStore:
    where = f"127.0.0.1:{port}"
    if how == "parameter":
        return open_redis(f"redis://{where}", password=CANARY, op_timeout=0.3)
    url = f"redis://:{CANARY}@{where}" if how == "url" else f"redis://{where}?password={CANARY}"
    return open_redis(url, op_timeout=0.3)
