"""The address guard: no connection is made to where none may go, however the way there is hidden.

What must not be reached is a listener that counts who connects: on 127.0.0.2, while 127.0.0.1
is allowed and plays the public internet.
"""

from __future__ import annotations

import ipaddress
import socket
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core.errors import FetchError
from data_fetcher_core.loader.addresses import is_refused
from data_fetcher_core.loader.connecting import numeric_address
from tests.properties import quick
from tests.web import Load, Names, Site, answer, loading, redirect

PUBLIC = "127.0.0.1"
PRIVATE = "127.0.0.2"


def guarded(
    resolver: AbstractResolver | None = None, **given: Any
) -> AbstractAsyncContextManager[Load]:
    """A loader for which 127.0.0.1 is the only loopback address that may be reached."""
    networks = {"allow_private": False, "allow_networks": [f"{PUBLIC}/32"]}
    return loading(resolver=resolver, **{**networks, **given})


async def refusal(load: Load, url: str) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await load(url)
    assert not caught.value.retryable
    return caught.value


# --- which addresses ----------------------------------------------------------------------------

REFUSED = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.254",
    "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1", "172.31.255.255",
    "192.0.0.1", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.7", "203.0.113.9",
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::10.1.2.3", "64:ff9b:1::1",
    "64:ff9b:1::8.8.8.8", "100::1", "2001::1", "2001:0:7f00:1::", "2001:db8::1",
    "2002:7f00:1::", "2002:a00:1::1", "2002:c0a8:101::", "fc00::1", "fd12:3456::1", "fe80::1",
    "fe80::1%eth0", "fe80::1%25lo", "fec0::1", "ff02::1", "ff0e::1", "4000::1", "::ffff:0.0.0.0",
    "", "localhost", "0177.0.0.1", "127.1", "2130706433", "0x7f.1", "127.0.0.1.", "8.8.8.8:80",
]  # fmt: skip
ALLOWED = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
    "172.15.255.255", "172.32.0.0", "192.169.0.0", "223.255.255.255",
    "2606:4700:4700::1111", "2a00:1450:4001::8", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
    "2002:808:808::1",
]  # fmt: skip


@pytest.mark.parametrize("address", REFUSED)
def test_refused(address: str) -> None:
    assert is_refused(address)


@pytest.mark.parametrize("address", ALLOWED)
def test_allowed(address: str) -> None:
    assert not is_refused(address)


@quick(100)
@given(st.ip_addresses(v=4))
def test_no_disguise_changes_an_address(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    disguises = [
        ipaddress.IPv6Address((0xFFFF << 32) | number),
        ipaddress.IPv6Address((0x64FF9B << 96) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80) | 1),
    ]
    plain = is_refused(str(address))
    assert [is_refused(str(disguise)) for disguise in disguises] == [plain] * 3


@quick(100)
@given(st.ip_addresses())
def test_what_is_private_is_refused(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        written = [getattr(address, way, None) for way in ("ipv4_mapped", "sixtofour")]
        assert is_refused(str(address)) or any(one and one.is_global for one in written)


def test_a_network_may_be_allowed() -> None:
    networks = [ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fd00::/8")]
    assert not is_refused("10.1.2.3", networks)
    assert not is_refused("::ffff:10.1.2.3", networks)
    assert not is_refused("fd00::1%eth0", networks)
    assert is_refused("10.2.0.1", networks)


@pytest.mark.parametrize(
    ("host", "address"),
    [("0x7f.1", "127.0.0.1"), ("2130706433", "127.0.0.1"), ("0177.0.0.1", "127.0.0.1"),
     ("127.1", "127.0.0.1"), ("8.8.8.8", "8.8.8.8"), ("::1", "::1"), ("example.org", None),
     ("", None), ("a\0b", None), ("1.2.3.4.5", None)],
)  # fmt: skip
def test_numbers_are_addresses_however_written(host: str, address: str | None) -> None:
    assert numeric_address(host) == address


# --- at the socket ------------------------------------------------------------------------------

LITERALS = [
    "127.0.0.2", "127.0.2", "127.2", "2130706434", "0x7f000002", "0x7f.2", "0x7f.0.0.2",
    "0177.0.0.2", "017700000002", "[::ffff:127.0.0.2]", "[::ffff:7f00:2]", "[::127.0.0.2]",
    "[64:ff9b::127.0.0.2]", "[2002:7f00:2::]", "①②⑦.0.0.2", "127.0.0.2.", "127。0。0。2",
]  # fmt: skip


@pytest.mark.parametrize("literal", LITERALS)
async def test_no_spelling_of_a_private_address_is_connected_to(literal: str) -> None:
    async with Site({"/": answer(b"secret")}, host=PRIVATE) as canary, guarded() as load:
        await refusal(load, canary.url("/", host=literal))
        assert canary.connections == 0


async def test_the_error_says_how_to_allow_it() -> None:
    async with Site({"/": answer()}, host=PRIVATE) as canary, guarded() as load:
        error = await refusal(load, canary.url())
    assert "127.0.0.2 is a private address; --allow-private" in str(error)


async def test_what_is_allowed_is_reached() -> None:
    async with Site({"/": answer(b"public")}) as site, guarded() as load:
        assert (await load(site.url())).body == b"public"
    async with Site({"/": answer(b"own")}, host=PRIVATE) as site, loading() as load:
        assert (await load(site.url())).body == b"own"


async def test_a_name_that_leads_to_a_private_address() -> None:
    names = Names({"inside.example.org": [PRIVATE]})
    async with Site({"/": answer()}, host=PRIVATE) as canary, guarded(names) as load:
        error = await refusal(load, canary.url("/", host="inside.example.org"))
        assert canary.connections == 0
    assert "inside.example.org is at 127.0.0.2, which is a private address" in str(error)


async def test_localhost_is_a_name_as_well() -> None:
    async with (
        Site({"/": answer()}) as canary,
        loading(allow_private=False) as load,
    ):
        await refusal(load, canary.url("/", host="localhost"))
        assert canary.connections == 0


async def test_of_several_addresses_only_the_allowed_are_used() -> None:
    names = Names({"both.example.org": [PRIVATE, "::1", "0.0.0.0", PUBLIC, "10.0.0.1"]})
    async with Site({"/": answer(b"public")}) as site, guarded(names) as load:
        page = await load(site.url("/", host="both.example.org"))
    assert page.body == b"public"


async def test_a_redirect_to_a_private_address() -> None:
    async with Site({"/": answer()}, host=PRIVATE) as canary, Site() as site, guarded() as load:
        site.answers["/"] = redirect(canary.url())
        error = await refusal(load, site.url())
        assert canary.connections == 0
    assert "redirect" in str(error)
    assert "private address" in str(error)


async def test_a_redirect_to_a_name_of_a_private_address() -> None:
    names = Names({"inside.example.org": [PRIVATE]})
    async with (
        Site({"/": answer()}, host=PRIVATE) as canary,
        Site() as site,
        guarded(names) as load,
    ):
        site.answers["/"] = redirect(canary.url("/", host="inside.example.org"))
        await refusal(load, site.url())
        assert canary.connections == 0


async def test_a_name_that_changes_its_mind() -> None:
    names = Names({"fickle.example.org": [[PUBLIC], [PRIVATE]]})
    async with (
        Site({"/": answer()}, host=PRIVATE) as canary,
        Site() as site,
        guarded(names) as load,
    ):
        site.answers["/"] = redirect(canary.url("/", host="fickle.example.org"))
        await refusal(load, site.url("/", host="fickle.example.org"))
        assert site.connections == 1
        assert canary.connections == 0
    assert names.asked == ["fickle.example.org"] * 2


class Liar(AbstractResolver):
    """Says whatever it likes where an address should be."""

    def __init__(self, said: str) -> None:
        self._said = said

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host=self._said, port=port, family=family,
                              proto=0, flags=0)]  # fmt: skip

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("said", ["localhost", "0x7f.2", "127.2", "::ffff:127.0.0.2", "", "nobody"])
async def test_what_a_resolver_says_is_not_believed(said: str) -> None:
    async with Site({"/": answer()}, host=PRIVATE) as canary, guarded(Liar(said)) as load:
        await refusal(load, canary.url("/", host="example.org"))
        assert canary.connections == 0


async def test_the_socket_is_guarded_even_if_the_lookup_was_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The filter in front of the connector is a courtesy: the guard is behind it."""
    monkeypatch.setattr(
        "data_fetcher_core.loader.connecting.GuardedResolver._allowed",
        lambda self, host, found: found,
    )
    names = Names({"inside.example.org": [PRIVATE]})
    async with Site({"/": answer()}, host=PRIVATE) as canary, guarded(names) as load:
        await refusal(load, canary.url("/", host="inside.example.org"))
        assert canary.connections == 0


async def test_robots_are_no_way_around_it() -> None:
    async with (
        Site({"/robots.txt": answer()}, host=PRIVATE) as canary,
        Site({"/": answer(b"public")}) as site,
        guarded(obey_robots=True) as load,
    ):
        site.answers["/robots.txt"] = redirect(canary.url("/robots.txt"))
        assert (await load(site.url())).body == b"public"
        await refusal(load, canary.url())
        assert canary.connections == 0


async def test_a_name_without_addresses() -> None:
    async with guarded(Names({"empty.example.org": []})) as load:
        with pytest.raises(FetchError, match="cannot be resolved") as caught:
            await load("http://empty.example.org/")
    assert caught.value.retryable
