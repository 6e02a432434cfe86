"""Crawling a site: from the start URLs along the links, as far as the scope goes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from yarl import URL

from data_fetcher_core.core import FetcherRecipe, FetchRunContext, Loader, Page, RequestMeta
from data_fetcher_core.recipes.answers import not_kept, page_of, redirect_of, referer_of, url_of
from data_fetcher_core.recipes.links import links_of
from data_fetcher_core.recipes.off_loop import parsed
from data_fetcher_core.recipes.scope import Scope
from data_fetcher_core.recipes.start_urls import StartUrls
from data_fetcher_core.recipes.web_urls import configured_urls
from data_fetcher_core.urls import public_url

_log = logging.getLogger(__name__)

_HTML = frozenset({"text/html", "application/xhtml+xml"})


class SiteLocator:
    """Gives the start URLs, and for each page its links that are in scope.

    Without a scope, the crawl stays at the scheme, host and port of its start URLs; these
    themselves are always fetched.
    """

    def __init__(
        self,
        start_urls: Iterable[str | URL] | str | URL,
        scope: Scope | None = None,
        *,
        follow_nofollow: bool = True,
    ) -> None:
        urls = configured_urls(start_urls, "start URL")
        self.scope = Scope.around(urls) if scope is None else scope
        self._follow_nofollow = follow_nofollow
        self._start = StartUrls(urls)

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
        if page.status != 200:
            return self._redirected(request, page)
        if not _is_html(page) or not self._goes_deeper(request):
            return []
        if page.body is None:
            _log.warning("%s: %s; its links are unknown", public_url(request.url), not_kept(page))
            return []
        body = page.body
        return await parsed(len(body), lambda: self._children(request, page, body))

    def _goes_deeper(self, request: RequestMeta) -> bool:
        return self.scope.max_depth is None or request.depth < self.scope.max_depth

    def _children(self, request: RequestMeta, page: Page, body: bytes) -> list[RequestMeta]:
        url, depth, admits = url_of(page, request), request.depth + 1, self.scope.admits
        referer = referer_of(url)
        links = links_of(body, url, page.charset, follow_nofollow=self._follow_nofollow)
        return [RequestMeta(link, depth, referer) for link in links if admits(link, depth)]

    def _redirected(self, request: RequestMeta, page: Page) -> list[RequestMeta]:
        target = redirect_of(request, page)
        if target is None:
            return []
        if self.scope.admits(target.url, target.depth):
            return [target]
        if request.depth == 0:
            _log.warning(
                "%s redirects to %s, which is out of scope: start there instead?",
                public_url(request.url),
                public_url(target.url),
            )
        return []


def _is_html(page: Page) -> bool:
    """By its type, or, where the server told none, by how it begins."""
    media_type = page.content_type.partition(";")[0].strip().lower()
    return media_type in _HTML or (
        not media_type and (page.body or b"")[:64].lstrip().startswith(b"<")
    )


def crawl_recipe(
    start_urls: Iterable[str | URL] | str | URL,
    loader: Loader,
    *,
    scope: Scope | None = None,
    recipe_id: str = "crawl",
) -> FetcherRecipe:
    """Crawl a site. The loader does not follow redirects: their targets are requests, too."""
    return FetcherRecipe(recipe_id, [SiteLocator(start_urls, scope)], loader)
