"""Fetching what a sitemap lists; sitemaps are requests themselves, and may list sitemaps."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from yarl import URL

from data_fetcher_core.core import FetcherRecipe, FetchRunContext, Loader, Page, RequestMeta
from data_fetcher_core.errors import FetchError
from data_fetcher_core.recipes.answers import (
    MOST_LISTED,
    not_kept,
    page_of,
    redirect_of,
    referer_of,
    url_of,
)
from data_fetcher_core.recipes.off_loop import parsed
from data_fetcher_core.recipes.scope import Scope
from data_fetcher_core.recipes.sitemap_entries import Reading, likely_size, reading_of
from data_fetcher_core.recipes.start_urls import StartUrls
from data_fetcher_core.recipes.web_urls import configured_urls, web_url_or_none
from data_fetcher_core.urls import public_url

_log = logging.getLogger(__name__)

DEEPEST = 5
_SITEMAP = {"sitemap": True}


class SitemapLocator:
    """Gives sitemaps, and for each of them the pages and sitemaps it lists.

    A scope narrows the pages; without one, all are fetched. A sitemap that cannot be had is a
    failure; only of one that another lists and that is gone, a warning is enough.
    """

    def __init__(
        self, urls: Iterable[str | URL] | str | URL, *, scope: Scope | None = None
    ) -> None:
        self.scope = Scope() if scope is None else scope
        self._start = StartUrls(configured_urls(urls, "sitemap URL"), _SITEMAP)

    async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
        return self._start.next_requests()

    def checkpoint(self) -> dict[str, int]:
        return self._start.checkpoint()

    def restore(self, state: Mapping[str, int]) -> None:
        self._start.restore(state)

    async def handle_url_processed(
        self, request: RequestMeta, result: object, ctx: FetchRunContext
    ) -> list[RequestMeta]:
        page = page_of(result)
        if page is None:
            return []
        target = redirect_of(request, page)
        if target is not None:
            return self._redirected(target)
        if not request.flags.get("sitemap"):
            return []
        if _is_gone(request, page):
            return []
        body = _body(request, page)
        url = url_of(page, request)
        return await parsed(likely_size(body), lambda: self._children(request, url, body))

    def _redirected(self, target: RequestMeta) -> list[RequestMeta]:
        is_sitemap = target.flags.get("sitemap")
        return [target] if is_sitemap or self.scope.admits(target.url, target.depth) else []

    def _children(self, request: RequestMeta, url: URL, body: bytes) -> list[RequestMeta]:
        reading = reading_of(body, MOST_LISTED)
        _check(reading, request)
        referer, depth = referer_of(url), request.depth + 1
        urls = [(web_url_or_none(text, url), is_sitemap) for text, is_sitemap in reading.entries]
        _report(request, sum(listed is None for listed, _ in urls))
        return [
            RequestMeta(listed, depth, referer, flags=_SITEMAP if is_sitemap else None)
            for listed, is_sitemap in urls
            if listed is not None and self._follows(listed, depth, is_sitemap=is_sitemap)
        ]

    def _follows(self, url: URL, depth: int, *, is_sitemap: bool) -> bool:
        if not is_sitemap:
            return self.scope.admits(url, depth)
        if depth > DEEPEST:
            _log.warning("%s: a sitemap listed %d deep is not read", public_url(url), depth)
        return depth <= DEEPEST


def _is_gone(request: RequestMeta, page: Page) -> bool:
    """Indexes list sitemaps that are gone; any other that cannot be had would be missed."""
    is_gone = page.status in {404, 410} and request.depth > 0
    if is_gone:
        _log.warning("%s: %s", public_url(request.url), _unwanted(page))
    elif page.status != 200:
        raise FetchError(f"{public_url(request.url)}: {_unwanted(page)}", retryable=False)
    return is_gone


def _unwanted(page: Page) -> str:
    return f"status {page.status} where a sitemap was wanted"


def _body(request: RequestMeta, page: Page) -> bytes:
    if page.body is None:
        raise FetchError(f"{public_url(request.url)}: {not_kept(page)}", retryable=False)
    return page.body


def _check(reading: Reading, request: RequestMeta) -> None:
    """What was listed before a sitemap broke off is taken; one without anything has failed."""
    url = public_url(request.url)
    if reading.is_cut:
        _log.warning("%s: only its first %d entries are read", url, MOST_LISTED)
    if reading.failure is None:
        return
    if not reading.entries:
        raise FetchError(f"{url}: {reading.failure}")
    _log.warning("%s: only its beginning could be read: %s", url, reading.failure)


def _report(request: RequestMeta, bad: int) -> None:
    if bad:
        _log.warning("%s: %d entries are no URLs", public_url(request.url), bad)


def sitemap_recipe(
    urls: Iterable[str | URL] | str | URL,
    loader: Loader,
    *,
    scope: Scope | None = None,
    recipe_id: str = "sitemap",
) -> FetcherRecipe:
    """Fetch what sitemaps list."""
    return FetcherRecipe(recipe_id, [SitemapLocator(urls, scope=scope)], loader)
