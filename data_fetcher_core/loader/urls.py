"""URLs as the loader needs them: absolute, by HTTP, and without credentials. Pure."""

from __future__ import annotations

import re
from urllib.parse import quote

from yarl import URL

from data_fetcher_core.errors import FetchError
from data_fetcher_core.urls import public_url

Origin = tuple[str, str | None, int | None]
_LONGEST_SHOWN = 300
# What a name may consist of, or an IPv6 address with its zone.
_HOST = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=-]+|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]+(%[A-Za-z0-9._~%-]+)?")
_SAFE = "!#$%&'()*+,/:;=?@[]~"


def shown_url(url: URL) -> str:
    """The URL for a message: no credentials in it, and never longer than a few lines."""
    text = str(public_url(url))
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def check_url(url: URL) -> None:
    """Refuse what cannot be asked for by HTTP."""
    if url.scheme not in {"http", "https"}:
        raise FetchError(f"{shown_url(url)}: only http and https can be fetched", retryable=False)
    if not _HOST.fullmatch(url.raw_host or ""):
        raise FetchError(f"{shown_url(url)}: the URL names no host", retryable=False)


def origin_of(url: URL) -> Origin:
    return (url.scheme, url.raw_host, url.port)


def target_of(base: URL, location: str) -> URL:
    """Where a ``Location`` leads, without fragment; ``ValueError`` if it is no URL at all."""
    if not location.isascii():
        location = quote(location.encode("utf-8", "surrogateescape"), safe=_SAFE)
    try:
        return base.join(URL(location)).with_fragment(None)
    except IndexError:  # an @ after a bracket
        raise ValueError("not a URL") from None
