"""What a locator reads from the answer to a request: its page, and where it redirects to. Pure."""

from __future__ import annotations

import logging
from typing import Any

from yarl import URL

from data_fetcher_core.core import Page, RequestMeta
from data_fetcher_core.recipes.web_urls import web_url_or_none
from data_fetcher_core.urls import public_url

_log = logging.getLogger(__name__)

MOST_REDIRECTS = 10
# Beyond this an answer is no list, but a machine that makes one. They are all in memory at once.
MOST_LISTED = 200_000


def page_of(result: Any) -> Page | None:
    """The page among what a loader returned, if there is one."""
    if isinstance(result, Page):
        return result
    if isinstance(result, list | tuple):
        return next((page for page in result if isinstance(page, Page)), None)
    return None


def url_of(page: Page, request: RequestMeta) -> URL:
    """What the links of a page are relative to."""
    if page.final_url in {None, page.url}:
        return request.url  # as it was asked for, with the credentials that a page leaves out
    return web_url_or_none(page.final_url or "") or request.url


def not_kept(page: Page) -> str:
    """Why nobody can look into a page."""
    return (
        f"a body of {page.length} bytes ({page.content_type or 'no type'}) that the loader does "
        "not keep: it is larger than keep_body=, or of a type that is no text"
    )


def referer_of(url: URL) -> str:
    return str(public_url(url)).partition("#")[0]


def redirect_of(request: RequestMeta, page: Page) -> RequestMeta | None:
    """The request for where this one is sent to, as deep and flagged as this one."""
    if not 300 <= page.status < 400 or not page.location:
        return None
    redirects = _count(request.flags.get("redirects")) + 1
    target = web_url_or_none(page.location, url_of(page, request))
    if target is None or redirects > MOST_REDIRECTS:
        _log.warning(
            "%s redirects %s: not followed",
            public_url(request.url),
            "to what is no URL" if target is None else f"for the {redirects}th time in a row",
        )
        return None
    flags = {**request.flags, "redirects": redirects}
    return RequestMeta(target, request.depth, referer_of(request.url), flags=flags)


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
