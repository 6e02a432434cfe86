"""Serves the site on loopback, and remembers what was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from aiohttp import web

from data_fetcher_core.cli.demo.site import Site, page_at
from data_fetcher_core.errors import DataFetcherError

_HOST = "127.0.0.1"
_GLANCE = 0.01
_PATIENCE = 5.0


class SiteServer:
    """``asked`` counts how often each page was asked for, ``strangers`` what is no page."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._web: web.Server | None = None
        self._arrival = anyio.Event()
        self.port = 0
        self.asked: Counter[int] = Counter()
        self.strangers = 0

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.port}"

    async def until_asked(self, pages: int) -> None:
        """Until so many different pages were asked for."""
        while len(self.asked) < pages:
            await self._arrival.wait()

    async def until_idle(self) -> None:
        """Until all that a killed client had sent was taken in, and nobody is connected."""
        with anyio.move_on_after(_PATIENCE):
            await anyio.sleep(_GLANCE)
            while self._web is not None and self._web.connections:  # noqa: ASYNC110 - it tells nobody
                await anyio.sleep(_GLANCE)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._web = web.Server(self._answer, access_log=None)
        runner = web.ServerRunner(self._web, handle_signals=False)
        await runner.setup()
        try:
            place = web.TCPSite(runner, _HOST, 0, shutdown_timeout=0.0)
            await _start(place)
            self.port = runner.addresses[0][1]
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/robots.txt":
            return web.Response(status=404)
        page = page_at(request.path)
        if page is None or page >= self._site.pages:
            self.strangers += 1
            return web.Response(status=404)
        self.asked[page] += 1
        self._arrival.set()
        self._arrival = anyio.Event()
        await anyio.sleep(self._site.delay(page))
        return web.Response(body=self._site.html(page), content_type="text/html", charset="utf-8")


async def _start(place: web.TCPSite) -> None:
    try:
        await place.start()
    except OSError as error:
        raise DataFetcherError(f"no site can be served on {_HOST}: {error.strerror}") from error
