"""Proxies: used where asked for, trusted with nothing that was not meant for them."""

from __future__ import annotations

import traceback
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.errors import ConfigurationError, FetchError
from data_fetcher_core.loader import HttpLoader, HttpOptions
from tests.test_loader_pages import Shelf
from tests.tls import make_authority
from tests.web import Load, Names, Proxy, Site, answer, loading, redirect

PUBLIC = {"example.org": ["93.184.215.14"], "inside.example.org": ["127.0.0.2"]}
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


@pytest.fixture(autouse=True)
def no_proxies_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def through(
    proxy: Proxy, names: Names | None = None, **given: Any
) -> AbstractAsyncContextManager[Load]:
    """A guarded loader behind a proxy that is on loopback."""
    resolver = Names(PUBLIC) if names is None else names
    return loading(proxy=proxy.url, allow_private=False, resolver=resolver, **given)


async def failure(load: Load, url: str) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await load(url)
    return caught.value


async def test_a_page_through_a_proxy() -> None:
    """The proxy is on loopback, and may be: the user named it."""
    shelf = Shelf()
    async with (
        Site({"/a": answer(b"page")}) as site,
        Proxy({"example.org": site.port}) as proxy,
        through(proxy, obey_robots=True) as load,
    ):
        page = await load("http://example.org/a", shelf, headers={"X-Own": "1"})
    assert (page.url, page.body) == ("http://example.org/a", b"page")
    assert shelf.committed == [b"page"]
    assert [asked.target for asked in proxy.asked] == [
        "http://example.org/robots.txt",
        "http://example.org/a",
    ]
    assert site.asked[1].headers["x-own"] == "1"


async def test_a_tunnel_through_a_proxy(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    context = authority.server_context("example.org")
    async with (
        Site({"/": answer(b"safe")}, context=context) as site,
        Proxy({"example.org:443": site.port}) as proxy,
    ):
        own = proxy.url.replace("//", "//me:s3cret@")
        async with loading(proxy=own, ca_file=str(authority.ca_file)) as load:
            page = await load("https://example.org/", headers={"Authorization": "for-the-site"})
    assert page.body == b"safe"
    (asked,) = proxy.asked
    assert (asked.method, asked.target) == ("CONNECT", "example.org:443")
    assert asked.headers["proxy-authorization"] == "Basic bWU6czNjcmV0"
    assert "for-the-site" not in str(asked)
    assert site.asked[0].headers["authorization"] == "for-the-site"
    assert "proxy-authorization" not in site.asked[0].headers


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.2/", "http://[::1]/", "http://[::ffff:127.0.0.2]/", "http://0x7f.2/",
        "http://2130706434/", "http://0177.0.0.2/", "http://inside.example.org/",
        "https://inside.example.org/", "https://169.254.169.254/latest/meta-data/",
        # Names that we cannot resolve and a proxy might: of its own machine.
        "http://127.0.0.2./", "http://localhost./", "http://a.localhost/", "http://1.2.3.4.127/",
        "http://0x7f.0.0.0x2./",
    ],
)  # fmt: skip
async def test_a_proxy_is_not_sent_where_we_may_not_go(url: str) -> None:
    async with Proxy({}) as proxy:
        async with through(proxy) as load:
            error = await failure(load, url)
        assert proxy.connections == 0
    assert not error.retryable
    assert "private address" in str(error)


async def test_a_proxy_is_not_redirected_there_either() -> None:
    async with (
        Site({"/": redirect("http://inside.example.org/")}) as site,
        Proxy({"example.org": site.port, "inside.example.org": site.port}) as proxy,
        through(proxy) as load,
    ):
        error = await failure(load, "http://example.org/")
    assert not error.retryable
    assert [asked.target for asked in proxy.asked] == ["http://example.org/"]


async def test_one_private_address_among_others_is_enough() -> None:
    names = Names({"both.example.org": ["93.184.215.14", "10.0.0.1"]})
    async with Proxy({}) as proxy:
        async with through(proxy, names) as load:
            assert "10.0.0.1" in str(await failure(load, "http://both.example.org/"))
        assert proxy.connections == 0


async def test_a_name_that_only_the_proxy_knows() -> None:
    async with (
        Site({"/": answer(b"page")}) as site,
        Proxy({"far.example.org": site.port}) as proxy,
        through(proxy, Names({})) as load,
    ):
        assert (await load("http://far.example.org/")).body == b"page"


async def test_a_name_is_looked_up_once_in_a_while() -> None:
    names = Names(PUBLIC)
    async with (
        Site({"/": answer()}) as site,
        Proxy({"example.org": site.port}) as proxy,
        through(proxy, names) as load,
    ):
        for _ in range(3):
            await load("http://example.org/")
    assert names.asked == ["example.org"]


async def test_a_proxy_that_fails() -> None:
    async with Proxy({}) as proxy, loading(proxy=proxy.url) as load:
        plain = await failure(load, "http://example.org/")
        tunnel = await failure(load, "https://example.org/")
    assert "502" in str(plain)
    assert "the proxy refused to connect (502)" in str(tunnel)
    assert plain.retryable
    assert tunnel.retryable


async def test_a_proxy_that_is_not_there() -> None:
    async with Proxy({}) as proxy:
        gone = proxy.url.replace("//", "//me:s3cret@")
    async with loading(proxy=gone) as load:
        error = await failure(load, "https://example.org/")
    assert error.retryable
    assert "the proxy cannot be reached" in str(error)
    assert "s3cret" not in "".join(traceback.format_exception(error))


async def test_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Site({"/": answer(b"page")}) as site, Proxy({"example.org": site.port}) as proxy:
        monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
        async with loading(trust_env=True) as load:
            assert (await load("http://example.org/")).body == b"page"
            assert proxy.connections == 1
            assert (await load(site.url())).body == b"page"
            assert proxy.connections == 1
        async with loading(resolver=Names({})) as load:
            await failure(load, "http://example.org/")
        assert proxy.connections == 1


async def test_what_needs_no_proxy_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.2")
    async with Site({"/": answer()}, host="127.0.0.2") as canary:
        async with loading(trust_env=True, allow_private=False) as load:
            error = await failure(load, canary.url())
        assert canary.connections == 0
    assert not error.retryable


def test_a_proxy_of_the_environment_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://me:s3cret@127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY") as caught:
        HttpLoader(HttpOptions(trust_env=True))
    assert "s3cret" not in str(caught.value)
    HttpLoader(HttpOptions())
