"""The address guard, at the one place where connections are made.

Every socket is opened by :func:`guarded_socket`, which is given the very address that is
connected to next: a name that changes its mind between a check and the connection has nothing
to gain. The resolver filters beforehand, so that a name with some public addresses still works.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Any

from aiohttp import TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult

from data_fetcher_core.loader.addresses import Network, is_refused
from data_fetcher_core.loader.options import HttpOptions

_DNS_TTL = 60
# Short, because a wide crawl leaves an idle connection at every host.
_KEEPALIVE = 5.0


class AddressRefused(OSError):
    """The address is not of the public internet."""


def guarded_connector(
    options: HttpOptions, resolver: AbstractResolver, context: SSLContext | bool
) -> TCPConnector:
    """Connections to where the options allow."""
    return TCPConnector(
        resolver=GuardedResolver(resolver, options),
        socket_factory=None if options.allow_private else _opener(options.networks),
        **_common(options, context),
    )


def proxy_connector(options: HttpOptions, context: SSLContext | bool) -> TCPConnector:
    """Connections to a proxy, wherever it is: the user named it."""
    return TCPConnector(**_common(options, context))


def _common(options: HttpOptions, context: SSLContext | bool) -> dict[str, Any]:
    return {
        "limit": options.connections,
        "ttl_dns_cache": _DNS_TTL,
        "keepalive_timeout": _KEEPALIVE,
        "ssl": context,
    }


def _opener(networks: Sequence[Network]) -> Callable[[tuple[Any, ...]], socket.socket]:
    return functools.partial(guarded_socket, networks)


def guarded_socket(networks: Sequence[Network], address_info: tuple[Any, ...]) -> socket.socket:
    """A socket for an address, if it may be connected to."""
    family, kind, protocol, _, address = address_info
    if is_refused(address[0], networks):
        raise AddressRefused(f"{address[0]} is a private address")
    return socket.socket(family, kind, protocol)


class GuardedResolver(AbstractResolver):
    """Answers those addresses of a name that may be connected to."""

    def __init__(self, resolver: AbstractResolver, options: HttpOptions) -> None:
        self._resolver = resolver
        self._allow_private = options.allow_private
        self._networks = options.networks

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        if not found:
            raise OSError(None, "it has no address")
        return found if self._allow_private else self._allowed(host, found)

    def _allowed(self, host: str, found: list[ResolveResult]) -> list[ResolveResult]:
        allowed = [one for one in found if not is_refused(one["host"], self._networks)]
        if not allowed:
            raise AddressRefused(f"{host} is at {found[0]['host']}, which is a private address")
        return allowed

    async def close(self) -> None:
        """What it asks belongs to whoever made that."""


def numeric_address(host: str) -> str | None:
    """The address that a host is if it is no name, in whichever way it is written."""
    if ":" in host:
        return host
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, ValueError):
        return None
