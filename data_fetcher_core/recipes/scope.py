"""How far a crawl goes: which URLs belong to it. A value, and pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from yarl import URL

from data_fetcher_core.checking import is_whole_number
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.recipes.web_urls import configured_urls
from data_fetcher_core.showing import shown

_Origin = tuple[str, str | None, int | None]
_LISTS = ("origins", "hosts", "include", "exclude")


@dataclass(frozen=True, slots=True)
class Scope:
    """What is admitted: every setting narrows, and an empty one does not count.

    ``origins`` are scheme, host and port (``http://example.org:8080``); ``hosts`` are names, at
    any port, and ``*.example.org`` is every name below; being in either is enough. The URL begins
    with ``prefix``. ``include`` and ``exclude`` are regular expressions, searched in the whole
    URL: at least one of the first is found, and none of the second. ``max_depth`` is how many
    links away from a start URL, 0 being the start URLs alone.
    """

    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    prefix: str = ""
    max_depth: int | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    _origins: frozenset[_Origin] = field(init=False, repr=False, compare=False)
    _hosts: frozenset[str] = field(init=False, repr=False, compare=False)
    _parents: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _including: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)
    _excluding: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assign = partial(object.__setattr__, self)
        for name in _LISTS:
            assign(name, _texts(name, getattr(self, name)))
        _check_depth(self.max_depth)
        urls = configured_urls(self.origins, "origin") if self.origins else ()
        assign("origins", tuple(sorted({_origin_text(url) for url in urls})))
        assign("hosts", tuple(sorted({_host(host) for host in self.hosts})))
        assign("prefix", _prefix(self.prefix))
        assign("_origins", frozenset(map(_origin, urls)))
        assign("_hosts", frozenset(host for host in self.hosts if host[0] != "*"))
        assign("_parents", tuple(host[1:] for host in self.hosts if host[0] == "*"))
        assign("_including", _compiled("include", self.include))
        assign("_excluding", _compiled("exclude", self.exclude))

    @classmethod
    def around(cls, start_urls: Iterable[str | URL] | str | URL, **narrower: Any) -> Self:
        """The scheme, host and port of the start URLs, and what else is given."""
        urls = configured_urls(start_urls, "start URL")
        return cls(origins=tuple(_origin_text(url) for url in urls), **narrower)

    def admits(self, url: URL, depth: int = 0) -> bool:
        """Whether a URL belongs to the crawl. It is an http or https URL."""
        if self.max_depth is not None and depth > self.max_depth:
            return False
        return self._is_here(url) and self._is_wanted(url)

    def _is_here(self, url: URL) -> bool:
        if not self.origins and not self.hosts:
            return True
        host = url.raw_host or ""
        return (
            (url.scheme, host, url.port) in self._origins
            or host in self._hosts
            or (bool(self._parents) and host.endswith(self._parents))
        )

    def _is_wanted(self, url: URL) -> bool:
        if not (self.prefix or self.include or self.exclude):
            return True
        text = str(url)
        return (
            (text.startswith(self.prefix) or f"{text}/" == self.prefix)
            and (not self.include or any(wanted.search(text) for wanted in self._including))
            and not any(unwanted.search(text) for unwanted in self._excluding)
        )


def _texts(name: str, values: object) -> tuple[str, ...]:
    if isinstance(values, str):
        return (values,)
    if not isinstance(values, Iterable):
        raise ConfigurationError(f"{name} must be a list of texts, not {shown(values)}")
    texts = tuple(values)
    for text in texts:
        if not isinstance(text, str) or not text:
            raise ConfigurationError(f"{name} must hold texts, not {shown(text)}")
    return texts


def _check_depth(depth: object) -> None:
    if depth is not None and not is_whole_number(depth, 0):
        raise ConfigurationError(
            f"max_depth must be a whole number from 0, or None for no limit, not {shown(depth)}"
        )


def _origin(url: URL) -> _Origin:
    return (url.scheme, url.raw_host, url.port)


def _origin_text(url: URL) -> str:
    return str(url.origin())


def _host(host: str) -> str:
    """As it stands in a URL: in lower case, and in ASCII."""
    below = host.startswith("*.")
    name = host[2:] if below else host
    try:
        raw = URL.build(scheme="http", host=name).raw_host
    except ValueError:
        raw = None
    if not raw or set(raw) & set("*/@ "):
        raise ConfigurationError(
            f"not a host: {shown(host)}: write example.org, or *.example.org for all names below"
        )
    return f"*.{raw}" if below else raw


def _prefix(prefix: object) -> str:
    """As URLs are written here, or a prefix with another case of its host would admit nothing."""
    if not isinstance(prefix, str):
        raise ConfigurationError(f"prefix must be the beginning of a URL, not {shown(prefix)}")
    if not prefix:
        return ""
    url = configured_urls(prefix, "prefix")[0]
    return f"{url.origin()}/" if str(url) == str(url.origin()) else str(url)


def _compiled(name: str, patterns: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    return tuple(_pattern(name, pattern) for pattern in patterns)


def _pattern(name: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigurationError(
            f"{name} is no regular expression: {pattern!r:.200} ({error})"
        ) from None
