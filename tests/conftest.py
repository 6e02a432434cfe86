"""Servers every test file may ask for. One of each kind per test process, emptied per test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.redis_proxy import RedisProxy
from tests.servers import NO_SERVER, Binary, RedisCluster, RedisServer, find_binaries, stop_all
from tests.tls import TlsRedis, make_authority

_BINARIES = find_binaries()


@pytest.fixture(scope="session")
def redis_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    """A running server of every version found, the newest first."""
    _need_a_server()
    servers = [RedisServer(tmp_path_factory.mktemp("redis"), binary) for binary in _BINARIES]
    try:
        yield [server.start() for server in servers]
    finally:
        stop_all(servers)


@pytest.fixture(scope="session")
def redis_server(redis_servers: list[RedisServer]) -> RedisServer:
    """The newest. Its settings are shared: a test that changes them starts its own."""
    return redis_servers[0]


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    redis_server.flush()
    return redis_server.url


# Without a server there is still one parameter, so that its tests fail instead of vanishing.
@pytest.fixture(params=_BINARIES or [Binary((), Path())], ids=lambda binary: binary.label)
def each_redis(request: pytest.FixtureRequest, redis_servers: list[RedisServer]) -> RedisServer:
    """The test runs once per server version."""
    binary: Binary = request.param
    server = next(server for server in redis_servers if server.binary == binary)
    server.flush()
    return server


StartRedis = Callable[..., RedisServer]


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[StartRedis]:
    """Start a server for this test alone: ``start_redis(appendonly="yes", maxmemory="5mb")``."""
    _need_a_server()
    started: list[RedisServer] = []

    def start(binary: Binary | None = None, **options: str) -> RedisServer:
        directory = tmp_path / f"redis{len(started)}"
        directory.mkdir()
        started.append(RedisServer(directory, binary, **options))
        return started[-1].start()

    try:
        yield start
    finally:
        stop_all(started)


@pytest.fixture(scope="session")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    _need_a_server()
    cluster = RedisCluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def redis_cluster(_cluster: RedisCluster) -> RedisCluster:
    """Three masters, emptied; ``.url`` is ``redis+cluster://…``."""
    _cluster.flush()
    return _cluster


@pytest.fixture
async def redis_proxy(redis_server: RedisServer, redis_url: str) -> AsyncIterator[RedisProxy]:
    """A faulty network in front of the newest server."""
    async with RedisProxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def tls_redis(
    redis_server: RedisServer, redis_url: str, tmp_path: Path
) -> AsyncIterator[TlsRedis]:
    """The newest server behind TLS, with a certificate for ``localhost`` by a test authority."""
    authority = make_authority(tmp_path)
    async with RedisProxy(redis_server.port, ssl=authority.server_context("localhost")) as proxy:
        yield TlsRedis(proxy.port, authority)


def _need_a_server() -> None:
    if not _BINARIES:
        pytest.fail(NO_SERVER, pytrace=False)
