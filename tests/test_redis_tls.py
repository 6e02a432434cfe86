"""TLS to a Redis: a peer that cannot be trusted hears nothing from us."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from data_fetcher_core.errors import ConfigurationError, DataFetcherError, StoreUnavailable
from data_fetcher_core.kv_store.redis.address import Endpoint, parse_address
from data_fetcher_core.kv_store.redis.connection import make_wire
from tests.conftest import OpenRedis
from tests.evidence import Evidence
from tests.fault_support import bounded
from tests.redis_proxy import RedisProxy
from tests.servers import RedisServer
from tests.tls import Authority, TlsRedis, make_authority, self_signed_context

__all__ = ["bounded"]


async def test_a_certificate_that_we_trust(tls_redis: TlsRedis, open_redis: OpenRedis) -> None:
    store = open_redis(tls_redis.url)
    await store.put("key", 1)
    assert await store.range_get("") == [("key", 1)]
    assert await store.block_on([b"none"], 0) is None


# --- peers that must not be trusted --------------------------------------------------------------


def _unknown(_: Authority, directory: Path) -> ssl.SSLContext:
    (directory / "other").mkdir()
    return make_authority(directory / "other").server_context("localhost")


Peer = Callable[[Authority, Path], ssl.SSLContext]
PEERS: dict[str, tuple[Peer, type[DataFetcherError], str]] = {
    "expired": (
        lambda authority, _: authority.server_context("localhost", expired=True),
        ConfigurationError,
        "expired.*renew the certificate",
    ),
    "wrong host": (
        lambda authority, _: authority.server_context("elsewhere.example"),
        ConfigurationError,
        "mismatch.*'localhost'.*issue one for this name",
    ),
    "unknown authority": (_unknown, ConfigurationError, "local issuer.*ssl_ca_certs=/path"),
    "self-signed": (
        lambda _, directory: self_signed_context(directory, "localhost"),
        ConfigurationError,
        "self.signed.*ssl_ca_certs=/path",
    ),
    "TLS 1.0": (
        lambda authority, _: authority.outdated_context("localhost", ssl.TLSVersion.TLSv1),
        StoreUnavailable,
        "must offer TLS 1.2 or newer",
    ),
    "TLS 1.1": (
        lambda authority, _: authority.outdated_context("localhost", ssl.TLSVersion.TLSv1_1),
        StoreUnavailable,
        "must offer TLS 1.2 or newer",
    ),
}


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("peer", PEERS)
async def test_a_peer_that_is_not_trusted_hears_nothing(
    redis_server: RedisServer, open_redis: OpenRedis, tmp_path: Path, peer: str, shows: Evidence
) -> None:
    redis_server.flush()
    authority = make_authority(tmp_path)
    make, kind, message = PEERS[peer]
    async with RedisProxy(redis_server.port, ssl=make(authority, tmp_path)) as proxy:
        with pytest.raises(DataFetcherError, match=message) as caught:
            await open_redis(TlsRedis(proxy.port, authority).url).put("key", 1)
        told = "named" if isinstance(caught.value, kind) else repr(caught.value)
        shows("F65", f"{peer}: commands that reached the server", proxy.commands.total(), exactly=0)
    shows("F65", f"{peer}: error with its remedy", told, exactly="named")
    with redis_server.client() as client:
        shows("F65", f"{peer}: keys written", client.dbsize(), exactly=0)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_what_is_broken_is_not_spoken_even_where_the_system_allows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lenient = ssl.create_default_context()
    lenient.minimum_version = ssl.TLSVersion.TLSv1
    monkeypatch.setattr(ssl, "create_default_context", lambda: lenient)
    wire = make_wire(parse_address("rediss://host"), Endpoint("host", 6379))
    assert wire.ssl_context.get().minimum_version == ssl.TLSVersion.TLSv1_2  # type: ignore[attr-defined]


async def test_a_server_without_tls_is_not_spoken_to_without(
    redis_server: RedisServer, redis_url: str, open_redis: OpenRedis, shows: Evidence
) -> None:
    with redis_server.client() as client:
        client.config_resetstat()
        with pytest.raises(StoreUnavailable, match="switch TLS on"):
            await open_redis(f"rediss://127.0.0.1:{redis_server.port}", op_timeout=0.5).get("key")
        asked = client.info("commandstats")
    reached = sum(asked.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("get", "hello"))
    shows("F65", "no TLS at the server: commands that reached it", reached, exactly=0)


async def test_plain_towards_a_server_with_tls(tls_redis: TlsRedis, open_redis: OpenRedis) -> None:
    with pytest.raises(StoreUnavailable):
        await open_redis(f"redis://127.0.0.1:{tls_redis.port}", op_timeout=1).get("key")


# --- files of the URL ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("ssl_ca_certs=/nowhere.pem", "cannot be read: ssl_ca_certs=/nowhere.pem"),
        ("ssl_certfile=/no.pem&ssl_keyfile=/no.key", "ssl_certfile=/no.pem, ssl_keyfile=/no.key"),
        ("ssl_ca_certs={empty}", "no certificate.*ssl_ca_certs="),
        ("ssl_certfile={empty}", "no certificate.*ssl_certfile="),
    ],
)
async def test_files_that_cannot_be_used_are_named(
    tls_redis: TlsRedis, open_redis: OpenRedis, tmp_path: Path, options: str, message: str
) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    given = options.format(empty=empty)
    with pytest.raises(ConfigurationError, match=message):
        await open_redis(f"rediss://localhost:{tls_redis.port}?{given}").get("key")


async def test_a_server_that_wants_to_know_us(
    redis_server: RedisServer, redis_url: str, open_redis: OpenRedis, tmp_path: Path
) -> None:
    authority = make_authority(tmp_path)
    context = authority.server_context("localhost")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.ca_file)
    ours = authority.issue(tmp_path, "client.example")
    async with RedisProxy(redis_server.port, ssl=context) as proxy:
        url = TlsRedis(proxy.port, authority).url
        with pytest.raises(StoreUnavailable):
            await open_redis(url, op_timeout=1.0).get("key")
        assert not proxy.commands
        await open_redis(f"{url}&ssl_certfile={ours}&ssl_keyfile={ours}").put("key", 1)
