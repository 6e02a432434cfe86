"""The options of the HTTP loader: one table, checked at the door."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import metadata
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from yarl import URL

from data_fetcher_core.checking import is_number, is_whole_number
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.loader.addresses import Network
from data_fetcher_core.loader.headers import flaw_in_header
from data_fetcher_core.showing import shown

_MIB = 1024 * 1024
_LARGEST = 2**62
_LONGEST = 86_400.0


@functools.cache
def default_user_agent() -> str:
    """The product and its version."""
    try:
        version = metadata.version("data-fetcher-core")
    except metadata.PackageNotFoundError:
        version = "0"
    return f"data-fetcher-core/{version}"


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    """How pages are asked for. Durations are seconds, sizes are bytes."""

    user_agent: str = field(default_factory=default_user_agent)
    """Who asks. What stands before the ``/`` is the name that robots.txt may call."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request; a request's own headers win."""
    timeout: float = 60.0
    """How long a page may take in all, redirects included. Its robots.txt has the same again."""
    connect_timeout: float = 15.0
    """How long one attempt to connect may take, TLS included."""
    max_size: int = 64 * _MIB
    """The largest body, counted as sent and as decoded; a larger one is refused."""
    max_header_size: int = 32_768
    """The longest line of a header; there may be 128 of them."""
    max_redirects: int = 10
    """How many redirects in a row are followed."""
    follow_redirects: bool = True
    """If not, a redirect is an answer like any other, with its ``location``."""
    allow_private: bool = False
    """Whether addresses that are not of the public internet may be connected to."""
    allow_networks: Sequence[str] = ()
    """Networks that may be connected to all the same: ``["10.1.0.0/16"]``."""
    obey_robots: bool = True
    """Whether robots.txt is asked for, and obeyed."""
    proxy: str | None = field(default=None, repr=False)
    """``http://[user:password@]host:port`` of a proxy for all requests."""
    trust_env: bool = False
    """Whether ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY`` count where no proxy is given."""
    ca_file: str | None = None
    """A PEM file of authorities that are trusted besides the system's."""
    keep_body: int = 64 * _MIB
    """Up to how many bytes a text is kept in memory for parsing; any other is only stored."""
    connections: int = 0
    """How many connections may be in use; 0 for no bound of the loader's own."""

    def __post_init__(self) -> None:
        for option in fields(self):
            if check := _CHECKS.get(str(option.type)):
                check(option.name, getattr(self, option.name))
        _check_user_agent(self.user_agent)
        object.__setattr__(self, "headers", _checked_headers(self.headers))
        object.__setattr__(self, "allow_networks", tuple(self.allow_networks))
        _ = self.networks
        if self.proxy is not None:
            proxy_url(self.proxy)
        if self.ca_file is not None and not _is_file(self.ca_file):
            raise ConfigurationError(
                f"ca_file must be a PEM file, and {shown(self.ca_file)} is none"
            )

    @property
    def networks(self) -> tuple[Network, ...]:
        """What ``allow_networks`` names."""
        return tuple(_network(text) for text in self.allow_networks)


def _is_file(path: object) -> bool:
    try:
        return isinstance(path, str | PathLike) and Path(path).is_file()
    except (OSError, ValueError):  # too long, or no text that can be a path
        return False


def proxy_url(text: str) -> URL:
    """A proxy's address, checked; its password is in no message."""
    try:
        url = URL(text)
    except (TypeError, ValueError, IndexError):
        url = URL()
    if url.scheme not in {"http", "https"} or not url.raw_host:
        raise ConfigurationError("proxy must be a URL like http://host:port")
    return url


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigurationError(
            f"allow_networks must hold networks like '10.1.0.0/16', not {shown(text)}: {error}"
        ) from None


def _check_user_agent(text: object) -> None:
    if not isinstance(text, str) or not text.strip() or flaw_in_header("User-Agent", text):
        raise ConfigurationError(
            f"user_agent must be a line of text like 'name/1.0', not {shown(text)}"
        )


def _checked_headers(headers: object) -> Mapping[str, str]:
    if not isinstance(headers, Mapping):
        raise ConfigurationError(f"headers must map names to values, not be {shown(headers)}")
    for name, value in headers.items():
        if flaw := flaw_in_header(name, value):
            raise ConfigurationError(f"headers: {flaw}")
    return MappingProxyType(dict(headers))


def _check_count(name: str, value: object) -> None:
    least = _LEAST.get(name, 0)
    if not is_whole_number(value, least, _LARGEST):
        raise ConfigurationError(
            f"{name} must be a whole number from {least} up, not {shown(value)}"
        )


def _check_duration(name: str, value: object) -> None:
    if not is_number(value, 0, _LONGEST) or value == 0:
        raise ConfigurationError(
            f"{name} must be a number of seconds above 0, at most {_LONGEST:g}, not {shown(value)}"
        )


def _check_switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, not {shown(value)}")


def _check_list(name: str, value: object) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigurationError(f"{name} must be a list of texts, not {shown(value)}")


_CHECKS: Mapping[str, Any] = {
    "int": _check_count,
    "float": _check_duration,
    "bool": _check_switch,
    "Sequence[str]": _check_list,
}
_LEAST = {"max_size": 1, "max_header_size": 256}
