"""Which requests go through a proxy, and what may be asked of it.

The proxy's own address is the user's choice and not checked. Where the target is, the proxy finds
out by itself; so the target is looked up here as well, and refused if any of its addresses is
private. A name that only the proxy can resolve is left to the proxy.
"""

from __future__ import annotations

import re
import time
from urllib.request import getproxies_environment, proxy_bypass

from aiohttp.abc import AbstractResolver
from yarl import URL

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.loader.addresses import is_refused
from data_fetcher_core.loader.connecting import AddressRefused, numeric_address
from data_fetcher_core.loader.options import HttpOptions, proxy_url

_REMEMBERED = 60.0
_MOST_REMEMBERED = 10_000
# The proxy's own machine; and what ends in a number, which some take for an address and some not.
_OF_NOBODY_ELSE = re.compile(r"(?:.*\.)?(?:localhost|[0-9]+|0x[0-9a-f]*)", re.IGNORECASE)


class Proxies:
    """The proxies of the options, or of the environment if it is trusted."""

    def __init__(self, options: HttpOptions) -> None:
        self._for_all = None if options.proxy is None else proxy_url(options.proxy)
        trusted = options.trust_env and self._for_all is None
        self._by_scheme = _environment() if trusted else {}
        self.any = self._for_all is not None or bool(self._by_scheme)

    def of(self, url: URL) -> URL | None:
        """The proxy for a URL; ``None`` for a connection of our own."""
        if self._for_all is not None or not self._by_scheme:
            return self._for_all
        if proxy_bypass(url.raw_host or ""):
            return None
        return self._by_scheme.get(url.scheme)


def _environment() -> dict[str, URL]:
    return {
        scheme: _from_environment(scheme, text)
        for scheme, text in getproxies_environment().items()
        if scheme in {"http", "https"} and text
    }


def _from_environment(scheme: str, text: str) -> URL:
    try:
        return proxy_url(text if "://" in text else f"http://{text}")
    except ConfigurationError:
        raise ConfigurationError(
            f"{scheme.upper()}_PROXY in the environment must be a URL like http://host:port"
        ) from None


class TargetCheck:
    """Looks where a name leads before a proxy is asked for it; remembers it for a minute."""

    def __init__(self, options: HttpOptions, resolver: AbstractResolver) -> None:
        self._options = options
        self._resolver = resolver
        self._clean: dict[str, float] = {}

    async def check(self, url: URL) -> None:
        host = url.raw_host or ""
        if self._options.allow_private or self._clean.get(host, 0.0) > time.monotonic():
            return
        for address in await self._addresses(host):
            if is_refused(address, self._options.networks):
                where = "" if address == host else f" is at {address}, which"
                raise AddressRefused(f"{host}{where} is a private address")
        if len(self._clean) >= _MOST_REMEMBERED:
            self._clean.clear()
        self._clean[host] = time.monotonic() + _REMEMBERED

    async def _addresses(self, host: str) -> list[str]:
        name = host.removesuffix(".")
        if (literal := numeric_address(name)) is not None:
            return [literal]
        if _OF_NOBODY_ELSE.fullmatch(name):
            return [host]
        try:
            return [found["host"] for found in await self._resolver.resolve(host)]
        except OSError:
            return []
