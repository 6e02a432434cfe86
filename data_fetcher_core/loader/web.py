"""The sessions: one for connections of our own, one for those that a proxy makes for us."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from aiohttp import (
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DefaultResolver,
    DummyCookieJar,
    TCPConnector,
)
from aiohttp.abc import AbstractResolver
from yarl import URL

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.loader.connecting import guarded_connector, proxy_connector
from data_fetcher_core.loader.decoding import ACCEPT_ENCODING
from data_fetcher_core.loader.failures import FOREIGN, fetch_error
from data_fetcher_core.loader.headers import common
from data_fetcher_core.loader.options import HttpOptions
from data_fetcher_core.loader.proxies import Proxies, TargetCheck

_MOST_HEADERS = 128


class Web:
    """Asks for one URL at a time, and raises nothing but our own errors.

    Sessions are opened by the first request that needs one, and again after a close.
    """

    def __init__(self, options: HttpOptions, resolver: AbstractResolver | None) -> None:
        self._options = options
        self._given_resolver = resolver
        self._resolver: AbstractResolver | None = None
        self._context = _trusting(options.ca_file)
        self._proxies = Proxies(options)
        self._direct: ClientSession | None = None
        self._proxied: tuple[ClientSession, TargetCheck] | None = None
        self.closings = 0

    async def get(self, url: URL, headers: Mapping[str, str] | None) -> ClientResponse:
        """The answer's head; its body is still to be read. No redirect is followed."""
        try:
            if self._proxies.any and (proxy := self._proxies.of(url)) is not None:
                return await self._get_by(proxy, url, headers)
            session = self._direct or self._open_direct()
            return await session.get(url, headers=headers, allow_redirects=False)
        except FOREIGN as error:
            raise fetch_error(url, error) from error

    async def close(self) -> None:
        """Let go of connections. Who is waiting for an answer is told that it is lost."""
        self.closings += 1
        sessions = [self._direct, self._proxied and self._proxied[0]]
        owned = self._resolver if self._given_resolver is None else None
        self._direct = self._proxied = self._resolver = None
        for closable in (*sessions, owned):
            if closable is not None:
                await closable.close()

    async def _get_by(
        self, proxy: URL, url: URL, headers: Mapping[str, str] | None
    ) -> ClientResponse:
        session, target = self._proxied or self._open_proxied()
        await target.check(url)
        return await session.get(url, headers=headers, allow_redirects=False, proxy=proxy)

    def _open_direct(self) -> ClientSession:
        connector = guarded_connector(self._options, self._lookup(), self._context)
        self._direct = _session(self._options, connector)
        return self._direct

    def _open_proxied(self) -> tuple[ClientSession, TargetCheck]:
        session = _session(self._options, proxy_connector(self._options, self._context))
        self._proxied = session, TargetCheck(self._options, self._lookup())
        return self._proxied

    def _lookup(self) -> AbstractResolver:
        if self._resolver is None:
            self._resolver = self._given_resolver or DefaultResolver()
        return self._resolver


def _session(options: HttpOptions, connector: TCPConnector) -> ClientSession:
    sent = {"User-Agent": options.user_agent, "Accept-Encoding": ACCEPT_ENCODING}
    return ClientSession(
        connector=connector,
        headers={**sent, **common(options.headers)},
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        # How long it may take in all is for whoever asks: a page is more than one request.
        timeout=ClientTimeout(sock_connect=options.connect_timeout),
        max_line_size=options.max_header_size,
        max_field_size=options.max_header_size,
        max_headers=_MOST_HEADERS,
    )


def _trusting(ca_file: str | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_verify_locations(ca_file)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"ca_file {ca_file!r} holds no certificates that can be read: {error}"
        ) from None
    return context
