"""A site on loopback whose pages form a tree: each is linked to by one other, and by no more.

So a page that is lost is missed, and with it all below it. It counts what it is asked for. It can
be had in the test's own loop (``async with Site(pages=100) as site``) or as a process of its own:
``python -m tests.site --pages 100 --port 0`` prints the port, and ``/__counts`` tells the counts.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

from aiohttp import web

COUNTS = "/__counts"


class Site:
    """``pages`` pages with ``links_per_page`` links each, from ``/`` on.

    ``statuses`` scripts paths: the n-th request is answered with the n-th status, later ones with
    the last. ``delay`` is how long each answer takes; ``hold`` keeps pages waiting until
    ``release`` is set. ``extra`` are answers of one's own by path: body and content type.
    """

    def __init__(
        self,
        pages: int = 20,
        links_per_page: int = 5,
        *,
        size: int = 200,
        delay: float = 0.0,
        statuses: Mapping[str, Sequence[int]] | None = None,
        extra: Mapping[str, tuple[str, str]] | None = None,
        robots: str | None = None,
    ) -> None:
        self.pages = pages
        self.links_per_page = links_per_page
        self.size = size
        self.delay = delay
        self.statuses = {path: list(given) for path, given in (statuses or {}).items()}
        self.extra = dict(extra or {})
        self.robots = robots
        self.counts: Counter[str] = Counter()
        self.headers: dict[str, str] = {}
        self.held: set[str] = set()
        self.release = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def start(self) -> str:
        return f"{self.url}/"

    def paths(self) -> list[str]:
        return [path_of(number) for number in range(self.pages)]

    def urls(self) -> set[str]:
        return {f"{self.url}{path}" for path in self.paths()}

    def page_counts(self) -> Counter[str]:
        """How often each page was asked for; robots.txt and the like left out."""
        paths = set(self.paths())
        return Counter({path: times for path, times in self.counts.items() if path in paths})

    def links(self, number: int) -> range:
        first = number * self.links_per_page + 1
        return range(min(first, self.pages), min(first + self.links_per_page, self.pages))

    def body(self, number: int) -> str:
        links = "".join(f'<a href="{path_of(to)}">{to}</a>\n' for to in self.links(number))
        page = f"<!doctype html><title>{number}</title>\n{links}"
        return page + f"<!--{'x' * max(0, self.size - len(page))}-->"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release.set()
        await self._runner.cleanup()

    async def listen(self, port: int = 0) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.port = self._runner.addresses[0][1]

    async def _answer(self, request: web.Request) -> web.Response:
        path = request.path_qs
        if path == COUNTS:
            return web.json_response(self.counts)
        self.counts[path] += 1
        self.headers = dict(request.headers)
        if path == "/robots.txt":
            return web.Response(status=404 if self.robots is None else 200, text=self.robots)
        await self._take_time(path)
        status = self._status(path)
        if status != 200:
            return web.Response(status=status, text=f"{status}")
        return self._page(path)

    async def _take_time(self, path: str) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)
        if path in self.held:
            await self.release.wait()

    def _status(self, path: str) -> int:
        script = self.statuses.get(path, [200])
        return script[min(self.counts[path], len(script)) - 1]

    def _page(self, path: str) -> web.Response:
        if path in self.extra:
            text, content_type = self.extra[path]
            return web.Response(text=text, content_type=content_type)
        number = number_of(path)
        if number is None or number >= self.pages:
            return web.Response(status=404)
        return web.Response(text=self.body(number), content_type="text/html")


def path_of(number: int) -> str:
    return "/" if number == 0 else f"/p/{number}"


def number_of(path: str) -> int | None:
    if path == "/":
        return 0
    tail = path.removeprefix("/p/")
    return int(tail) if tail != path and tail.isdecimal() else None


async def _serve(options: Any) -> None:
    site = Site(options.pages, options.links_per_page, size=options.size, delay=options.delay)
    await site.listen(options.port)
    print(site.port, flush=True)
    await asyncio.Event().wait()


def _options() -> Any:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pages", type=int, default=1_000)
    parser.add_argument("--links-per-page", type=int, default=5)
    parser.add_argument("--size", type=int, default=2_000)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--port", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(_serve(_options()))
