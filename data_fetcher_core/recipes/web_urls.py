"""From a text that somebody wrote to the URL that it means, or to why it means none. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from yarl import URL

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.showing import is_unicode, shown

# Servers refuse longer ones, and a page may hold one that never ends.
LONGEST_URL = 8_192
# What surrounds a URL in HTML, XML and text files and is no part of it.
_AROUND = "".join(map(chr, range(0x21)))
_WEB = ("http", "https")
# A name, or an IPv6 address with its zone.
_HOST = re.compile(r"[a-z0-9._~-]+|[0-9a-f.]*:[0-9a-f:.]+(?:%[a-z0-9._~%-]+)?")


def web_url(text: str, base: URL | None = None) -> URL:
    """The absolute http or https URL, without fragment; ``ValueError`` says what is wrong."""
    if len(text) > LONGEST_URL:
        raise ValueError(f"longer than {LONGEST_URL} characters")
    reference = text.strip(_AROUND).partition("#")[0]
    if not reference:
        raise ValueError("empty")
    if not reference.isascii() and not is_unicode(reference):
        raise ValueError("it holds a lone surrogate")
    if "\\" in reference:
        reference = _with_slashes(reference)
    url = _joined(reference, base)
    if url.scheme not in _WEB:
        raise ValueError("neither http nor https")
    if not _HOST.fullmatch(url.raw_host or ""):
        raise ValueError("no host that could be asked")
    # Of a base, where the text was as good as none.
    return url.with_fragment(None) if url.raw_fragment else url


def _joined(reference: str, base: URL | None) -> URL:
    if base is not None and ":" in reference:
        reference = _without_scheme_of(base, reference)
    try:
        url = URL(reference)
        # With a scheme and without a host, joining would take it for a path.
        return url if base is None or url.scheme else base.join(url)
    except (ValueError, IndexError):  # which may quote a password
        raise ValueError("not a URL") from None


def _without_scheme_of(base: URL, reference: str) -> str:
    """As browsers read it: ``http:x`` is ``x``, where the base is an http URL itself."""
    scheme, _, rest = reference.partition(":")
    if scheme.lower() != base.scheme or rest.startswith("//"):
        return reference
    if not rest:
        raise ValueError("empty")
    return rest if rest[0] in "/?" else f"./{rest}"


def _with_slashes(reference: str) -> str:
    """As browsers read it: before the query, a backslash is a slash."""
    path, mark, query = reference.partition("?")
    return path.replace("\\", "/") + mark + query


def web_url_or_none(text: str, base: URL | None = None) -> URL | None:
    try:
        return web_url(text, base)
    except ValueError:
        return None


def configured_urls(urls: Iterable[str | URL] | str | URL, what: str) -> tuple[URL, ...]:
    """The URLs a person gave, one or several; each is checked, and there is at least one."""
    if not isinstance(urls, str | URL | Iterable):
        raise ConfigurationError(f"{shown(urls)} is no {what}: write it like https://example.org/")
    given = [urls] if isinstance(urls, str | URL) else list(urls)
    if not given:
        raise ConfigurationError(f"at least one {what} is needed")
    return tuple(_configured_url(url, what) for url in given)


def _configured_url(url: str | URL, what: str) -> URL:
    try:
        return web_url(str(url))
    except ValueError as error:
        raise ConfigurationError(
            f"{_shown(str(url))} is no {what} ({error}): write it like https://example.org/"
        ) from None


def _shown(text: str) -> str:
    """For a message: what stands before an @ may be a password."""
    head, at, tail = text.rpartition("@")
    return repr(f"…@{tail}"[:200] if head and at else text[:200])
