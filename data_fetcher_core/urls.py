"""What a URL means: which page, and what of it may be shown."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from yarl import URL

from data_fetcher_core.errors import ValidationError
from data_fetcher_core.showing import is_unicode


def fingerprint_of(url: URL) -> str:
    """Equal for URLs that mean the same page; it begins with a digest of the host."""
    canonical = canonical_url(url)
    page = blake2b(str(canonical).encode(), digest_size=12)
    return _host_digest(canonical.raw_host or "") + page.hexdigest()


def canonical_url(url: URL) -> URL:
    """Without fragment, default port or empty path, and with its query in order.

    The escapes in the query stay as they are: what is no UTF-8 would not survive being read.
    """
    if not url.absolute:
        return url.with_fragment(None)
    path, query = url.raw_path, url.raw_query_string
    ordered = _in_order(query) if query else ""
    usual_port = url.explicit_port is not None and url.is_default_port()
    if ordered == query and path != "/" and not usual_port and not url.raw_fragment:
        return url
    return URL.build(
        scheme=url.scheme,
        authority=(url.with_port(None) if usual_port else url).raw_authority,
        path=path or "/",
        query_string=ordered,
        encoded=True,
    )


def public_url(url: URL) -> URL:
    """Without the credentials in it: for messages, and for the next server."""
    return url.with_user(None) if "@" in url.raw_authority else url


def _in_order(query: str) -> str:
    pairs = [pair for pair in query.replace("%20", "+").split("&") if pair]
    return "&".join(sorted(pairs, key=lambda pair: pair.partition("=")[0]))


@lru_cache(maxsize=4_096)
def _host_digest(host: str) -> str:
    return blake2b(host.encode(), digest_size=4).hexdigest()


def read_url(url: URL | str) -> URL:
    if isinstance(url, URL):
        return url
    if not isinstance(url, str):
        raise ValidationError(f"a URL is a string or a yarl.URL, not {type(url).__name__}")
    if not url.isascii() and not is_unicode(url):  # what cannot be written would be left out
        raise ValidationError(f"not a URL: {url[:200]!r} holds a lone surrogate")
    try:
        return URL(url)
    except (ValueError, IndexError) as error:
        raise ValidationError(f"not a URL: {url[:200]!r} ({error})") from None
