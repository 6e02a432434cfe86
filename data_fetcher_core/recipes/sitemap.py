"""Fetching what a sitemap lists; sitemaps are requests themselves, and may list sitemaps."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from yarl import URL

from data_fetcher_core.core import (
    Entry,
    FetcherRecipe,
    FetchRunContext,
    Loader,
    Page,
    RequestMeta,
    public_url,
)
from data_fetcher_core.errors import FetchError
from data_fetcher_core.recipes.answers import page_of, redirect_of, referer_of, url_of
from data_fetcher_core.recipes.off_loop import parsed
from data_fetcher_core.recipes.parts import LARGEST_PART, next_part, part_key, part_start
from data_fetcher_core.recipes.scope import Scope
from data_fetcher_core.recipes.sitemap_entries import Part, likely_size, part_of
from data_fetcher_core.recipes.start_urls import StartUrls
from data_fetcher_core.recipes.web_urls import configured_urls, web_url_or_none

_log = logging.getLogger(__name__)

DEEPEST = 5
_SITEMAP = {"sitemap": True}


class SitemapLocator:
    """Gives sitemaps, and for each of them the pages and sitemaps it lists.

    A scope narrows the pages; without one, all are fetched. One with more than 9,999 entries is
    asked for again for the rest, so it should not change meanwhile.
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
    ) -> list[RequestMeta | Entry]:
        page = page_of(result)
        if page is None:
            return []
        target = redirect_of(request, page)
        if target is not None:
            return self._redirected(target)
        if not request.flags.get("sitemap"):
            return []
        if page.status != 200:
            _log.warning("%s: no sitemap, but status %d", public_url(request.url), page.status)
            return []
        body = _body(request, page)
        url = url_of(page, request)
        return await parsed(likely_size(body), lambda: self._children(request, url, body))

    def _redirected(self, target: RequestMeta) -> list[RequestMeta | Entry]:
        if not target.flags.get("sitemap"):
            return [target] if self.scope.admits(target.url, target.depth) else []
        start = part_start(target)
        return [Entry(target, key=part_key(target.fingerprint, start)) if start else target]

    def _children(self, request: RequestMeta, url: URL, body: bytes) -> list[RequestMeta | Entry]:
        part = part_of(body, part_start(request), LARGEST_PART)
        _check(part, request)
        referer, depth = referer_of(url), request.depth + 1
        urls = [(web_url_or_none(text, url), is_sitemap) for text, is_sitemap in part.entries]
        children: list[RequestMeta | Entry] = [
            RequestMeta(listed, depth, referer, flags=_SITEMAP if is_sitemap else None)
            for listed, is_sitemap in urls
            if listed is not None and self._follows(listed, depth, is_sitemap=is_sitemap)
        ]
        _report(request, sum(listed is None for listed, _ in urls))
        return [*children, next_part(request, request.fingerprint)] if part.more else children

    def _follows(self, url: URL, depth: int, *, is_sitemap: bool) -> bool:
        if not is_sitemap:
            return self.scope.admits(url, depth)
        if depth > DEEPEST:
            _log.warning("%s: a sitemap listed %d deep is not read", public_url(url), depth)
        return depth <= DEEPEST


def _body(request: RequestMeta, page: Page) -> bytes:
    if page.body is None:
        raise FetchError(
            f"{public_url(request.url)}: a sitemap of {page.length} bytes is larger than what the "
            "loader keeps: raise its limit",
            retryable=False,
        )
    return page.body


def _check(part: Part, request: RequestMeta) -> None:
    """What was listed before a sitemap broke off is taken; one without anything has failed."""
    if part.failure is None:
        return
    if not part.entries:
        raise FetchError(f"{public_url(request.url)}: {part.failure}")
    _log.warning("%s: only its beginning could be read: %s", public_url(request.url), part.failure)


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
