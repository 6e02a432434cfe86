"""Sentinels: the master is found, and found again when it is another."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.errors import ConfigurationError, StoreUnavailable
from data_fetcher_core.kv_store.redis import RedisStore
from data_fetcher_core.kv_store.redis.address import parse_address
from tests.conftest import OpenRedis
from tests.evidence import Evidence
from tests.fault_support import bounded, open_run
from tests.harness import background
from tests.redis_proxy import RedisProxy, inject
from tests.redis_sentinels import NAME, WatchedRedis
from tests.servers import RedisServer, free_port
from tests.steady_load import SteadyLoad, Waiter
from tests.test_redis_address import CANARY, everything_said
from tests.tls import TlsRedis

__all__ = ["bounded"]

SLACK = 3
OP_TIMEOUT = 6.0
StartWatched = Callable[..., WatchedRedis]


@pytest.fixture
def start_watched(tmp_path: Path) -> Iterator[StartWatched]:
    started: list[WatchedRedis] = []

    def start(**how: Any) -> WatchedRedis:
        started.append(WatchedRedis(tmp_path / f"watched{len(started)}", **how))
        return started[-1].start()

    try:
        yield start
    finally:
        for watched in started:
            watched.stop()


# --- reading a URL -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis+sentinel://a/m", "redis+sentinel://a:26379/m/0"),
        ("redis+sentinel://a,b:7,[::1]/m/3", "redis+sentinel://a:26379,b:7,[::1]:26379/m/3"),
        ("redis+sentinel://u:p@a/m?db=2", "redis+sentinel://a:26379/m/2"),
        ("redis+sentinel://a/my%2Fmaster/1", "redis+sentinel://a:26379/my%2Fmaster/1"),
        ("rediss+sentinel://a/m?ssl_ca_certs=/ca", "rediss+sentinel://a:26379/m/0"),
        ("redis+sentinel://a/m?sentinel_password=p", "redis+sentinel://a:26379/m/0"),
    ],
)
def test_urls_that_can_be(url: str, text: str) -> None:
    assert str(parse_address(url)) == text
    assert repr(RedisStore(url)) == f"RedisStore({text!r}, key_prefix='')"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis+sentinel://a,b", "which master is meant.*name-of-the-master"),
        ("redis+sentinel://a//0", "which master is meant"),
        ("redis+sentinel://a/m/first", "'first'"),
        ("redis+sentinel://a/m/1/2", "'1/2'"),
        ("redis+sentinel://a:port/m", "'a:…'"),
        ("redis://a?sentinel_password=p", "'sentinel_password'"),
        ("redis+sentinel://a/m?ssl_ca_certs=/ca", "'ssl_ca_certs'"),
        ("redis://a,b", r"redis\+sentinel://a,b,c/mymaster"),
        (f"redis+sentinel://:{CANARY}/x@a/m", "percent-encode"),
    ],
)
def test_urls_that_cannot_be(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        RedisStore(url)
    assert CANARY not in everything_said(caught.value)


def test_the_sentinels_have_credentials_of_their_own() -> None:
    url = "redis+sentinel://u:p@a/m?sentinel_username=su&sentinel_password=s%40p"
    address = parse_address(url)
    assert (address.username, address.password) == ("u", "p")
    sentinel = address.of_sentinel(address.endpoints[0])
    assert (sentinel.username, sentinel.password, sentinel.db) == ("su", "s@p", 0)
    assert "p@" not in repr(address)


# --- the master dies, stands still, or is sent away ----------------------------------------------


async def _fail_over(
    watched: WatchedRedis,
    strike: Callable[[RedisServer], None],
    shows: Evidence,
    how: str,
    url: str | None = None,
) -> SteadyLoad:
    """Under load; afterwards work goes on by itself, and what was replicated is there."""
    async with (
        open_run(url or watched.url, op_timeout=OP_TIMEOUT) as queue,
        open_run(url or watched.url, op_timeout=OP_TIMEOUT) as idle,
    ):
        load, waiter = SteadyLoad(queue), Waiter(idle)
        async with background(load.run()) as running, background(waiter.run()) as waiting:
            await load.until_sent(300)
            await asyncio.to_thread(watched.expect_a_death)
            struck = time.monotonic()
            await asyncio.to_thread(strike, watched.master)
            await asyncio.to_thread(watched.wait_for_failover, watched.master)
            promoted = time.monotonic()
            await load.until_completed(100)
            resumed = time.monotonic() - promoted
            load.stop()
            await running
            await waiter.wake(queue)
            await waiting
        await load.finish()
        account = await load.account()
    window, sent = (find(struck - 1.0, promoted + 1.0) for find in (load.within, load.sent_within))
    figures = {
        "forgotten, sent before the last second": len(account.forgotten - sent),
        "requests nobody sent": len(account.appeared),
        "tokens given twice": account.tokens_reused,
        "duplicates outside of the failover": len(account.delivered_twice - window),
    }
    for what, count in figures.items():
        shows("F6", f"Sentinel, master {how}: {what}", count, exactly=0)
    shows("F6", f"Sentinel, master {how}: forgotten", len(account.forgotten), told=True)
    shows("F6", f"Sentinel, master {how}: lost of these", len(account.lost), told=True)
    at_most = OP_TIMEOUT * 1.1 * SLACK
    shows("F6", f"Sentinel, master {how}: slowest verb", load.slowest, at_most=at_most, unit="s")
    early = load.failed_early(OP_TIMEOUT)
    shows("F7", f"Sentinel, master {how}: callers failed before their time", early, exactly=0)
    shows("F7", f"Sentinel, master {how}: goes on", resumed, at_most=3.0 * SLACK, unit="s")
    shows(
        "F7",
        f"Sentinel, master {how}: who waited hears",
        waiter.took,
        at_most=6.0 * SLACK,
        unit="s",
    )
    return load


async def test_a_master_that_dies_is_followed_by_its_replica(
    start_watched: StartWatched, shows: Evidence
) -> None:
    await _fail_over(start_watched(), RedisServer.kill, shows, "killed")


async def test_a_master_that_stands_still_is_followed_by_its_replica(
    start_watched: StartWatched, shows: Evidence
) -> None:
    """It refuses nothing and answers nothing; connections to it look alive."""
    watched = start_watched()
    try:
        await _fail_over(watched, RedisServer.freeze, shows, "frozen")
    finally:
        watched.master.thaw()


@pytest.mark.slow
async def test_three_sentinels_of_which_one_is_dead(
    start_watched: StartWatched, shows: Evidence
) -> None:
    watched = start_watched(sentinels=3, replicas=2)
    dead = watched.sentinels.pop(0)
    url = f"redis+sentinel://127.0.0.1:{dead.port},{watched.hosts}/{NAME}"
    await asyncio.to_thread(dead.kill)
    await _fail_over(watched, RedisServer.kill, shows, "killed, of three sentinels one", url)


async def test_a_master_that_is_sent_away_is_left(
    start_watched: StartWatched, shows: Evidence
) -> None:
    """A planned failover: the former master lives on as a replica, and refuses to write."""

    def send_away(_: RedisServer) -> None:
        with watched.sentinels[0].client() as client:
            client.execute_command("SENTINEL FAILOVER", NAME)

    watched = start_watched()
    load = await _fail_over(watched, send_away, shows, "sent away")
    shows("F7", "errors to callers, master sent away", load.refusals["StoreUnavailable"], exactly=0)


async def test_a_replica_is_not_mistaken_for_the_master(
    start_watched: StartWatched, open_redis: OpenRedis
) -> None:
    """A sentinel that has not heard yet names the former master; it would answer from the past."""
    watched = start_watched()
    replica = watched.replicas[0]
    async with RedisProxy(watched.sentinels[0].port) as sentinel:
        store = open_redis(f"redis+sentinel://127.0.0.1:{sentinel.port}/{NAME}")
        await store.put("key", 1)
        await store.close()
        sentinel.fault(inject(_address_reply("127.0.0.1", replica.port)), command="SENTINEL")
        with pytest.raises(StoreUnavailable, match="is a replica"):
            await store.get("key")
        assert await store.get("key") == 1


def _address_reply(host: str, port: int) -> bytes:
    return f"*2\r\n${len(host)}\r\n{host}\r\n${len(str(port))}\r\n{port}\r\n".encode()


# --- sentinels that do not help ------------------------------------------------------------------


async def test_a_sentinel_that_is_dead_or_silent_is_passed_over(
    start_watched: StartWatched, open_redis: OpenRedis
) -> None:
    watched = start_watched(replicas=0)
    async with RedisProxy(watched.sentinels[0].port) as silent:
        silent.block()
        hosts = f"127.0.0.1:{free_port()},127.0.0.1:{silent.port},{watched.hosts}"
        store = open_redis(f"redis+sentinel://{hosts}/{NAME}")
        await store.put("key", 1)
        assert await store.get("key") == 1
        await store.close()
        unheard = open_redis(f"redis+sentinel://127.0.0.1:{silent.port}/{NAME}")
        with pytest.raises(StoreUnavailable, match="did not answer"):
            await unheard.get("key")


async def test_what_is_wrong_with_a_sentinel_is_told(
    start_watched: StartWatched, open_redis: OpenRedis, redis_url: str, redis_server: RedisServer
) -> None:
    watched = start_watched(replicas=0)
    one = watched.hosts
    async with RedisProxy(watched.sentinels[0].port) as garbled:
        garbled.fault(inject(b"+OK\r\n"), command="SENTINEL")
        for url, kind, message in [
            (f"redis+sentinel://{one}/other", ConfigurationError, "no master 'other'.*MASTERS"),
            (
                f"redis+sentinel://127.0.0.1:{redis_server.port}/m",
                ConfigurationError,
                "no sentinel",
            ),
            (f"redis://{one}", ConfigurationError, r"is a sentinel.*redis\+sentinel://"),
            (f"redis+sentinel://127.0.0.1:{free_port()}/m", StoreUnavailable, r"127\.0\.0\.1"),
            (f"redis+sentinel://127.0.0.1:{garbled.port}/m", StoreUnavailable, "no address"),
            # One that is away may know better than one that does not know.
            (f"redis+sentinel://{one},127.0.0.1:{free_port()}/m", StoreUnavailable, "127"),
        ]:
            with pytest.raises(kind, match=message):
                await open_redis(url).get("key")


async def test_a_former_master_that_is_still_named_is_asked_again(
    start_watched: StartWatched, open_redis: OpenRedis
) -> None:
    """Nobody promotes another: every verb ends in time, and all is well when it is back."""
    watched = start_watched(replicas=0)
    store = open_redis(watched.url, op_timeout=1.0)
    await store.put("key", 1)
    await asyncio.to_thread(watched.master.kill)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=f"{watched.master.port}"):
            await store.get("key")
    await asyncio.to_thread(watched.master.start)
    assert await store.get("key") is None


# --- who may come in, and what is never said -----------------------------------------------------


async def test_server_and_sentinels_each_have_their_password(
    start_watched: StartWatched, open_redis: OpenRedis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    watched = start_watched(replicas=1, requirepass=CANARY, sentinel_password=f"{CANARY}2")
    right, wrong = f"sentinel_password={CANARY}2", f"sentinel_password={CANARY}3"
    where = f"{watched.hosts}/{NAME}"
    store = open_redis(f"redis+sentinel://:{CANARY}@{where}?{right}")
    await store.put("key", 1)
    assert await open_redis(f"redis+sentinel://{where}?{right}", password=CANARY).get("key") == 1
    for url, message in [
        (f"redis+sentinel://:{CANARY}@{where}", "sentinel at.*sentinel_password="),
        (f"redis+sentinel://:{CANARY}@{where}?{wrong}", "sentinel at.*sentinel_password="),
        (f"redis+sentinel://:{CANARY}3@{where}?{right}", "check user, password"),
    ]:
        refused = open_redis(url)
        with pytest.raises(ConfigurationError, match=message) as caught:
            await refused.get("key")
        assert CANARY not in everything_said(caught.value) + repr(refused)
    assert CANARY not in caplog.text


async def test_tls_to_sentinels_and_server_alike(
    tls_redis: TlsRedis, redis_server: RedisServer, open_redis: OpenRedis
) -> None:
    """Verified both: nothing is said to a sentinel, or to a master, that we do not trust."""
    authority = tls_redis.authority
    options = f"ssl_ca_certs={authority.ca_file}"
    tls = authority.server_context("localhost")
    async with RedisProxy(redis_server.port, ssl=tls) as sentinel:
        url = f"rediss+sentinel://localhost:{sentinel.port}/{NAME}?{options}"
        sentinel.fault(
            inject(_address_reply("localhost", tls_redis.port)), command="SENTINEL", times=9
        )
        await open_redis(url).put("key", 1)
        assert await open_redis(url).get("key") == 1
        sentinel.commands.clear()
        with pytest.raises(ConfigurationError, match="CERTIFICATE_VERIFY_FAILED"):
            await open_redis(url.partition("?")[0]).get("key")
        assert not sentinel.commands
        # The certificate is for a name: the sentinels must tell names, not addresses.
        sentinel.heal()
        sentinel.fault(inject(_address_reply("127.0.0.1", tls_redis.port)), command="SENTINEL")
        with pytest.raises(ConfigurationError, match="mismatch"):
            await open_redis(url).get("key")
