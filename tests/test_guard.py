"""The address guard over the whole product: links, redirects, robots.txt, sitemaps, APIs, proxies.

Who connects is counted in two ways: by a listener at all loopback addresses, and by writing down
every address that a socket of this process is asked to connect to.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from data_fetcher_core.core import FetcherRecipe, FetchPlan, FetchRunContext
from data_fetcher_core.fetcher import Fetcher, FetchResult
from data_fetcher_core.fetcher.options import FetcherOptions
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.loader import HttpLoader, HttpOptions
from data_fetcher_core.queue import QueueOptions
from data_fetcher_core.recipes import Scope, api_recipe, crawl_recipe, sitemap_recipe
from tests.evidence import Evidence
from tests.web import Listener, Names, Proxy, Site, answer, redirect

PUBLIC = "127.0.0.9"  # is allowed, and plays the public internet
PRIVATE = "127.0.0.2"
WORLD = "world.example.org"

# --- every way to write one, or to be led to one -------------------------------------------------

LITERALS = (
    *("127.0.0.2", "127.0.2", "127.2", "2130706434", "0x7f000002", "0x7f.2", "0x7f.0.0.2"),
    *("0177.0.0.2", "017700000002", "0.0.0.0", "0", "00.0", "127.0.0.2.", "127。0。0。2"),
    *("①②⑦.0.0.2", "localhost", "LOCALHOST.", "10.0.0.1", "172.16.0.1", "192.168.0.1"),
    *("169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "192.0.2.1"),
    *(
        "[::]",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.2]",
        "[::ffff:7f00:2]",
        "[::127.0.0.2]",
    ),
    *("[64:ff9b::127.0.0.2]", "[64:ff9b:1::127.0.0.2]", "[2002:7f00:2::]", "[2001:0:7f00:2::]"),
    *("[fe80::1]", "[fe80::1%25lo]", "[fd00::1]", "[fec0::1]", "[ff02::1]", "[::ffff:0:127.0.0.2]"),
)
LEADING = {
    "inside": [PRIVATE],
    "any": ["0.0.0.0"],
    "any6": ["::"],
    "loop6": ["::1"],
    "mapped": [f"::ffff:{PRIVATE}"],
    "nat64": [f"64:ff9b::{PRIVATE}"],
    "sixtofour": ["2002:7f00:2::"],
    "metadata": ["169.254.169.254"],
    "link": ["fe80::1"],
    "unique": ["fd00::1"],
    "many": ["10.0.0.1", PRIVATE, "::1"],
}
# Public when it is looked at for the first time, private ever after.
FICKLE = "fickle.example.org"


HOSTS = (*LITERALS, *(f"{name}.example.org" for name in LEADING))
# Those that a machine without a network answers itself, and at once.
AT_HOME = ("127.0.0.2", "127.2", "0.0.0.0", "localhost", "inside.example.org", "any.example.org")


def names() -> Names:
    private = {f"{name}.example.org": addresses for name, addresses in LEADING.items()}
    known: dict[str, Any] = {"localhost": ["127.0.0.1", "::1"], "LOCALHOST.": [PRIVATE]}
    return Names({WORLD: [PUBLIC], FICKLE: [[PUBLIC], [PRIVATE]], **known, **private})


# --- counting ------------------------------------------------------------------------------------


class Canary(Listener):
    """Listens at every address of this machine, at one port."""

    async def __aenter__(self) -> Canary:
        both = socket.has_dualstack_ipv6()
        bound = socket.create_server(
            ("::" if both else "0.0.0.0", 0),
            family=socket.AF_INET6 if both else socket.AF_INET,
            dualstack_ipv6=both,
        )
        self._server = await asyncio.start_server(self._serve, sock=bound)
        self.port: int = bound.getsockname()[1]
        return self

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"the secret"))
        await writer.drain()


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Every address that a socket was asked to connect to."""
    addresses: list[tuple[Any, ...]] = []
    connect = BaseSelectorEventLoop.sock_connect

    async def noted(loop: Any, sock: socket.socket, address: Any) -> None:
        addresses.append(address)
        await connect(loop, sock, address)

    monkeypatch.setattr(BaseSelectorEventLoop, "sock_connect", noted)
    return addresses


# --- the product ---------------------------------------------------------------------------------


class Ways:
    """A site that leads to a port in every way a site can; each way is a URL of a denied host."""

    def __init__(self, port: int, hosts: Sequence[str]) -> None:
        self.port = port
        self.tried = 0
        self._hosts = hosts

    def targets(self, path: str = "/") -> list[str]:
        found = [f"http://{host}:{self.port}{path}" for host in self._hosts]
        self.tried += len(found)
        return found

    def page(self, site: Site) -> bytes:
        tags = ("<a href='{}'>", "<iframe src='{}'></iframe>", "<area href='{}'>")
        links = [tags[n % 3].format(url) for n, url in enumerate(self.targets("/link"))]
        links += [f"<a href='/redirect/{n}'>" for n in range(len(self._hosts))]
        links += [
            "<a href='/refresh'>",
            "<a href='/base'>",
            f"<a href='http://{FICKLE}:{site.port}/fickle'>",
        ]
        return "\n".join(links).encode()

    def sitemap(self) -> bytes:
        nested = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in self.targets("/map"))
        return f"<sitemapindex>{nested}</sitemapindex>".encode()

    def answers(self, site: Site) -> dict[str, Any]:
        html: dict[str, Any] = {"content_type": "text/html"}
        inside = f"http://{PRIVATE}:{self.port}"
        found: dict[str, Any] = {
            "/": answer(self.page(site), **html),
            "/refresh": answer(
                f"<meta http-equiv=refresh content='0;url={inside}'>".encode(), **html
            ),
            "/base": answer(f"<base href='{inside}/'><a href=x>".encode(), **html),
            "/map.xml": answer(self.sitemap(), content_type="text/xml"),
            "/fickle": redirect(f"http://{FICKLE}:{self.port}/"),
            "/robots.txt": redirect(f"{inside}/robots.txt"),
            "/api": answer(f'{{"next": "{inside}/api"}}'.encode(), content_type="application/json"),
        }
        for number, url in enumerate(self.targets("/redirected")):
            status = (301, 302, 303, 307, 308)[number % 5]
            found[f"/redirect/{number}"] = redirect(url.encode().decode("latin-1"), status)
        return found


async def fetch(recipe: FetcherRecipe) -> FetchResult:
    options = FetcherOptions(queue=QueueOptions(max_attempts=1), request_timeout=10.0)
    context = FetchRunContext("guard", SimpleNamespace(kv_store=MemoryStore(), storage=None))
    return await Fetcher(options, subscriber=lambda _: None).run(FetchPlan(recipe, context, 20))


def loader(**given: Any) -> HttpLoader:
    told = {"allow_networks": [f"{PUBLIC}/32"], "timeout": 5.0, "connect_timeout": 1.0, **given}
    return HttpLoader(HttpOptions(**told), resolver=names())


@asynccontextmanager
async def hostile_web(
    hosts: Sequence[str] = HOSTS,
) -> AsyncIterator[tuple[Canary, Site, Ways]]:
    async with Canary() as canary, Site(host=PUBLIC) as site:
        ways = Ways(canary.port, hosts)
        site.answers = ways.answers(site)
        yield canary, site, ways


def denied(sockets: list[tuple[Any, ...]], *allowed: Listener) -> list[tuple[Any, ...]]:
    places = {(listener.host, listener.port) for listener in allowed}
    return [to for to in sockets if to[:2] not in places]


async def test_nothing_leads_inside(sockets: list[tuple[Any, ...]], shows: Evidence) -> None:
    async with hostile_web() as (canary, site, ways):
        start = f"http://{WORLD}:{site.port}"
        for recipe in (
            crawl_recipe(f"{start}/", loader(), scope=Scope()),
            sitemap_recipe(f"{start}/map.xml", loader()),
            api_recipe(f"{start}/api", loader(), cursor_path="next"),
        ):
            assert (await fetch(recipe)).errors
        shows("F56", "ways to a denied address tried", ways.tried, at_least=150)
        shows("F56", "connections that a listener there counted", canary.connections, exactly=0)
        opened = denied(sockets, site)
        shows("F56", "sockets that were asked to connect there", len(opened), exactly=0)
        assert (PUBLIC, site.port) in sockets


async def test_nothing_leads_inside_by_way_of_a_proxy(
    sockets: list[tuple[Any, ...]], shows: Evidence
) -> None:
    """The proxy would connect for us: so it is not even asked."""
    async with hostile_web() as (canary, site, ways), Proxy({WORLD: site.port}, PUBLIC) as proxy:
        await fetch(crawl_recipe(f"http://{WORLD}/", loader(proxy=proxy.url), scope=Scope()))
        asked = {asked.target for asked in proxy.asked}
        assert f"http://{WORLD}/" in asked
        inside = [url for url in asked if f":{canary.port}" in url and FICKLE not in url]
        shows("F56", "denied addresses a proxy was asked for", len(inside), exactly=0)
        opened = denied(sockets, site, proxy)
        shows("F56", "sockets asked to connect there beside a proxy", len(opened), exactly=0)
        assert ways.tried > 100


async def test_the_canary_would_have_sung() -> None:
    """Allowed to, the same crawl does connect: it was the guard that kept it from doing so."""
    async with hostile_web(AT_HOME) as (canary, site, _):
        away = loader(allow_private=True, obey_robots=False)
        await fetch(crawl_recipe(f"http://{WORLD}:{site.port}/", away, scope=Scope()))
        assert canary.connections > len(AT_HOME)
