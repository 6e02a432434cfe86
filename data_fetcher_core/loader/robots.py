"""robots.txt by RFC 9309: asked for once per origin, and obeyed.

An answer of the 4xx kind means that everything is allowed; a server that fails or cannot be
reached means that nothing is for now, so that the request is tried again later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar
from weakref import WeakValueDictionary

import anyio.to_thread
from aiohttp import ClientResponse
from yarl import URL

from data_fetcher_core.deadlines import within
from data_fetcher_core.errors import FetchError, Postponed, Skipped
from data_fetcher_core.kv_store import KeyValueStore
from data_fetcher_core.loader.body import Body
from data_fetcher_core.loader.headers import secret
from data_fetcher_core.loader.options import HttpOptions
from data_fetcher_core.loader.redirects import BadRedirect, Redirects
from data_fetcher_core.loader.robots_cache import DAY, RulesInMemory, TextsInStore
from data_fetcher_core.loader.robots_rules import (
    LONGEST,
    RobotsRules,
    addressed_to,
    text_of,
    token_of,
)
from data_fetcher_core.loader.statuses import failure_of_status, is_answer
from data_fetcher_core.loader.urls import Origin, origin_of, shown_url
from data_fetcher_core.loader.web import Web
from data_fetcher_core.queue.together import Together

T = TypeVar("T")
PATH = "/robots.txt"
_MOST_REDIRECTS = 5
_READ_AT_ONCE = 16_384
_MOST_TOLD = 100_000


class Robots:
    """Knows which URLs may be asked for, and how often."""

    def __init__(self, options: HttpOptions, web: Web, store: KeyValueStore | None) -> None:
        self._web = web
        self._redirects = Redirects(web, _MOST_REDIRECTS)
        self._timeout = options.timeout
        self._headers: Mapping[str, str] | None = secret(options.headers) or None
        self._token = token_of(options.user_agent)
        self._memory = RulesInMemory()
        self._store = TextsInStore(store, self._token)
        # An entry lives as long as somebody waits for it.
        self._asking: WeakValueDictionary[Origin, Together[RobotsRules]] = WeakValueDictionary()
        self._told: dict[Origin, float] = {}

    async def admit(self, url: URL, text: str, *, paced: bool) -> None:
        """Raise :class:`Skipped` if the URL, ``text`` in letters, must not be asked for.

        If ``paced``, raise :class:`Postponed` where its host has a crawl-delay not told so far.
        """
        if url.raw_path == PATH:
            return
        origin = origin_of(url)
        told = self._told.get(origin)  # before anybody waits: all who do are to hear of it
        rules = self._memory.get(origin) or await self._rules(url)
        if not rules.allow(text):
            raise Skipped(f"{shown_url(url)}: robots.txt forbids it")
        if paced and rules.delay and rules.delay != told:
            self._pace(url, origin, rules.delay)

    def _pace(self, url: URL, origin: Origin, delay: float) -> None:
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told[origin] = delay
        raise Postponed(
            f"{shown_url(url)}: robots.txt asks for {delay:g} s between requests", interval=delay
        )

    async def _rules(self, url: URL) -> RobotsRules:
        """Found in memory, in the store, or asked for: once, however many want to know."""
        together = self._asking.setdefault(origin_of(url), Together())
        return await together.run(lambda: self._found(url))

    async def _found(self, url: URL) -> RobotsRules:
        origin = origin_of(url)
        if (known := self._memory.get(origin)) is not None:
            return known
        stored = await self._store.get(origin)
        if stored is None:
            whole = await self._ask(url.origin().with_path(PATH))
            text = await _read_by(addressed_to, self._token, whole)
            await self._store.put(origin, text)
            stored = text, DAY
        text, lifetime = stored
        rules = await _read_by(RobotsRules, self._token, text)
        self._memory.put(origin, rules, lifetime)
        return rules

    async def _ask(self, url: URL) -> str:
        """What the file says; nothing where there is none."""
        try:
            with within(self._timeout):
                response, at = await self._redirects.get(url, self._headers)
                return text_of(await self._beginning(response, at))
        except BadRedirect:
            return ""
        except TimeoutError:
            raise FetchError(
                f"robots.txt is unavailable: {shown_url(url)}: was not here within "
                f"{self._timeout:g} s"
            ) from None
        except FetchError as error:
            if not error.retryable:
                raise
            raise FetchError(
                f"robots.txt is unavailable: {error}", retry_after=error.retry_after
            ) from error

    async def _beginning(self, response: ClientResponse, url: URL) -> bytes:
        try:
            _check_status(response, url)
            found = 200 <= response.status < 300
            return await _read(Body(self._web, url, response)) if found else b""
        finally:
            response.close()


def _check_status(response: ClientResponse, url: URL) -> None:
    if not is_answer(response.status):
        raise failure_of_status(response, shown_url(url))


async def _read_by(reader: Callable[[str, str], T], token: str, text: str) -> T:
    """What ``reader`` makes of a text; in a thread, if it takes a while."""
    if len(text) <= _READ_AT_ONCE:
        return reader(token, text)
    return await anyio.to_thread.run_sync(reader, token, text)


async def _read(body: Body) -> bytes:
    read = bytearray()
    while len(read) <= LONGEST and (piece := await body.piece()):
        read += piece
    return bytes(read)
