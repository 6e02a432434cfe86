"""The links of an HTML page, as absolute URLs. Pure; no page makes it raise.

Followed are ``a`` and ``area``, frames, ``link rel=next`` and a refresh. Other schemes than http
and https, fragments of the page itself and what is no URL are passed over.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from urllib.parse import quote

from yarl import URL

from data_fetcher_core.recipes.markup import linking_tags
from data_fetcher_core.recipes.tag_scan import Tag
from data_fetcher_core.recipes.web_urls import web_url_or_none
from data_fetcher_core.urls import public_url

_log = logging.getLogger(__name__)

# Beyond this a page is no list of links, but a machine that makes them.
MOST_LINKS = 100_000
_OTHER_SCHEME = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_REFRESH = re.compile(
    r"""[\s\d.]*+[;,]?+\s*+(?:url\s*+=\s*+)?+(?:"([^"]*)|'([^']*)|(.+))""", re.IGNORECASE
)
_ATTRIBUTE = {"a": "href", "area": "href", "iframe": "src", "frame": "src", "base": "href"}
_QUERY_SAFE = "%!$&'()*+,-./:;=?@_~"


def links_of(
    body: bytes, url: URL, charset: str | None = None, *, follow_nofollow: bool = True
) -> Iterator[URL]:
    """Each link once, those of one kind in the order of the page."""
    base = None
    references, found = {""}, set()
    for tag in linking_tags(body, charset):
        reference = _reference(tag, follow_nofollow=follow_nofollow)
        if tag.name == "base":
            base = base or web_url_or_none(reference, url)
        elif reference not in references:
            references.add(reference)
            link = _resolved(reference, base or url, charset)
            if link is not None and (text := str(link)) not in found:
                found.add(text)
                yield link
        if len(references) > MOST_LINKS:
            _log.warning("%s: only its first %d links are read", public_url(url), MOST_LINKS)
            return


def _resolved(reference: str, base: URL, charset: str | None) -> URL | None:
    if _OTHER_SCHEME.match(reference):
        return None
    if charset and not reference.isascii() and "?" in reference:
        reference = _query_as_written(reference, charset)
    return web_url_or_none(reference, base)


def _query_as_written(reference: str, charset: str) -> str:
    """Browsers send a query in the charset of the page it stands on."""
    path, mark, query = reference.partition("?")
    try:
        return path + mark + quote(query, _QUERY_SAFE, charset, "strict")
    except (LookupError, ValueError):
        return reference


def _reference(tag: Tag, *, follow_nofollow: bool) -> str:
    """What the tag refers to, without fragment; empty if nothing."""
    attributes = tag.attributes
    if tag.name == "meta":
        found = _refresh(attributes)
    elif tag.name == "link":
        found = attributes.get("href") if "next" in _words(attributes, "rel") else None
    else:
        found = attributes.get(_ATTRIBUTE[tag.name])
    if not found or (not follow_nofollow and "nofollow" in _words(attributes, "rel")):
        return ""
    return found.partition("#")[0].strip()


def _words(attributes: dict[str, str | None], name: str) -> list[str]:
    return (attributes.get(name) or "").lower().split()


def _refresh(attributes: dict[str, str | None]) -> str | None:
    if "refresh" not in _words(attributes, "http-equiv"):
        return None
    found = _REFRESH.match(attributes.get("content") or "")
    return found[found.lastindex or 0] if found else None
