"""Servers every test file may ask for. One of each kind per test process, emptied per test."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from data_fetcher_core.errors import StoreError
from data_fetcher_core.kv_store import KeyValueStore, create_kv_store
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.kv_store.redis import RedisStore
from data_fetcher_core.queue import KVStoreQueue, QueueOptions
from data_fetcher_core.testing import ManualClock
from tests.canaries import hits
from tests.evidence import Evidence
from tests.redis_proxy import RedisProxy
from tests.servers import NO_SERVER, Binary, RedisCluster, RedisServer, find_binaries, stop_all
from tests.tls import TlsRedis, make_authority

_BINARIES = find_binaries()

# Properties that say nothing else: how long an example takes tells of the machine, not of us.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


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


OpenRedis = Callable[..., RedisStore]


@pytest.fixture
async def open_redis() -> AsyncIterator[OpenRedis]:
    """Make stores that are closed when the test ends: ``open_redis(url, op_timeout=1.0)``."""
    opened: list[RedisStore] = []

    def open_store(url: str, **options: Any) -> RedisStore:
        opened.append(RedisStore(url, **options))
        return opened[-1]

    yield open_store
    for store in opened:
        await store.close()


def _need_a_server() -> None:
    if not _BINARIES:
        pytest.fail(NO_SERVER, pytrace=False)


# --- every store alike: the same test over memory, SQLite and Redis -----------------------------

STORE_KINDS = ("memory", "sqlite", "redis")
OpenStore = Callable[[], KeyValueStore]
MakeQueue = Callable[..., KVStoreQueue]


@pytest.fixture(params=STORE_KINDS)
def store_kind(request: pytest.FixtureRequest) -> str:
    """The test runs once per kind of store."""
    kind: str = request.param
    return kind


@pytest.fixture
def store_url(store_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Where the data is, for another process to open."""
    if store_kind == "redis":
        url: str = request.getfixturevalue("redis_url")
        return url
    return "memory://" if store_kind == "memory" else f"sqlite:///{tmp_path / 'run.db'}"


@pytest.fixture
def store_maker(store_url: str) -> OpenStore:
    """Make store objects over the same data; memory has only the one. Who calls it closes them."""
    if store_url == "memory://":
        the_only_one = MemoryStore()
        return lambda: the_only_one
    return lambda: create_kv_store(store_url)


@pytest.fixture
async def open_store(store_maker: OpenStore) -> AsyncIterator[OpenStore]:
    """Open the data once more, as another process would; all are closed at the end."""
    opened: list[KeyValueStore] = []

    def open_again() -> KeyValueStore:
        opened.append(store_maker())
        return opened[-1]

    yield open_again
    for store in opened:
        await store.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def make_queue(open_store: OpenStore, clock: ManualClock) -> AsyncIterator[MakeQueue]:
    """Queues on one run, each with a store object of its own: ``make_queue(max_attempts=2)``."""
    made: list[KVStoreQueue] = []

    def make(namespace: str = "fetch:test", **given: Any) -> KVStoreQueue:
        own = {name: given.pop(name) for name in ("clock", "update", "serializer") if name in given}
        queue = KVStoreQueue(
            given.pop("store", None) or open_store(),
            namespace,
            subscriber=given.pop("subscriber", lambda _: None),
            options=QueueOptions(**given),
            **{"clock": clock, **own},
        )
        made.append(queue)
        return queue

    yield make
    for queue in made:
        # A test may have taken the store away.
        with suppress(StoreError):
            await queue.close()


@pytest.fixture
def queue(make_queue: MakeQueue) -> KVStoreQueue:
    return make_queue()


# --- what a fault did, in figures ---------------------------------------------------------------


@pytest.fixture
def shows(request: pytest.FixtureRequest) -> Iterator[Evidence]:
    """Hold a figure to its bound, and keep it: ``shows("F12", "mixed-up replies", 0, exactly=0)``.

    The faults are numbered in docs/reliability.md.
    """
    evidence = Evidence()
    yield evidence
    kept = [asdict(figure) for figure in evidence.figures]
    request.node.user_properties.append(("figures", kept))


# --- no test tells a secret ---------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test in whose output a known secret is seen fails, whatever it is about."""
    report = yield
    if report.passed and (told := hits(report.capstdout + report.capstderr + report.caplog)):
        report.outcome = "failed"
        report.longrepr = f"a secret was logged or printed: {told}"
    return report


# --- no test waits for ever ---------------------------------------------------------------------

_PATIENCE, _SLOW_PATIENCE = 60.0, 900.0


def pytest_itemcollected(item: pytest.Item) -> None:
    """An asynchronous test that hangs fails, and says where it hung."""
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        slow = item.get_closest_marker("slow") is not None
        item.obj = _bounded(item.obj, _SLOW_PATIENCE if slow else _PATIENCE)


def _bounded(test: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    @functools.wraps(test)
    async def run(**fixtures: Any) -> None:
        async with asyncio.timeout(seconds):
            await test(**fixtures)

    return run
