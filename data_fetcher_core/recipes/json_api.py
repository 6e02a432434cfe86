"""Fetching a JSON API page by page; each page tells the next, which is a request like any other."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from yarl import URL

from data_fetcher_core.checking import is_whole_number
from data_fetcher_core.core import Entry, FetcherRecipe, FetchRunContext, Loader, Page, RequestMeta
from data_fetcher_core.errors import ConfigurationError, FetchError
from data_fetcher_core.recipes.answers import (
    MOST_LISTED,
    not_kept,
    page_of,
    redirect_of,
    referer_of,
    url_of,
)
from data_fetcher_core.recipes.json_paths import at, read_json
from data_fetcher_core.recipes.off_loop import parsed
from data_fetcher_core.recipes.paging import (
    CursorPaging,
    LinkHeaderPaging,
    PageNumberPaging,
    PageRequest,
    Paging,
)
from data_fetcher_core.recipes.web_urls import configured_urls, web_url_or_none
from data_fetcher_core.showing import is_unicode, shown
from data_fetcher_core.urls import public_url

_log = logging.getLogger(__name__)
_LAST_PAGE = 10**15


class ApiLocator:
    """Gives the first page, and for each page the next one and the URLs of its items.

    Paths are dotted (``meta.next``). The next page is told by a cursor at ``cursor_path``, sent as
    ``cursor_param`` (without it, the cursor is the URL of the next page); or by the number in
    ``page_param``, up to the number at ``last_page_path`` or an empty list at ``items_path``; or
    else by the ``Link`` header. The URL of each item is at ``item_url_path`` within it; without
    one, the items are what the pages hold.
    """

    def __init__(
        self,
        url: str | URL,
        *,
        cursor_path: str | None = None,
        cursor_param: str | None = None,
        page_param: str | None = None,
        first_page: int = 1,
        last_page_path: str | None = None,
        items_path: str = "",
        item_url_path: str | None = None,
    ) -> None:
        for name, text in (
            ("cursor_path", cursor_path),
            ("cursor_param", cursor_param),
            ("page_param", page_param),
            ("last_page_path", last_page_path),
            ("items_path", items_path),
            ("item_url_path", item_url_path),
        ):
            _check_text(name, text)
        _check_page(first_page)
        _check_one_way(cursor_path, cursor_param, page_param, last_page_path)
        self._paging: Paging = LinkHeaderPaging()
        if cursor_path is not None:
            self._paging = CursorPaging(cursor_path, cursor_param)
        if page_param is not None:
            self._paging = PageNumberPaging(page_param, first_page, last_page_path, items_path)
        self._first = self._paging.first(configured_urls(url, "API URL")[0])
        self._name = f"api:{RequestMeta(self._first.url).fingerprint}"
        self._items_path = items_path
        self._item_url_path = item_url_path
        self._given = False

    async def get_next_urls(self, ctx: FetchRunContext) -> list[Entry]:
        given, self._given = self._given, True
        return [] if given else [self._request(self._first, 0)]

    def checkpoint(self) -> dict[str, bool]:
        return {"given": self._given}

    def restore(self, state: Mapping[str, bool]) -> None:
        self._given = state["given"]

    async def handle_url_processed(
        self, request: RequestMeta, result: object, ctx: FetchRunContext
    ) -> list[RequestMeta | Entry]:
        page = page_of(result)
        if page is None:
            return []
        target = redirect_of(request, page)
        if not self._is_ours(request):
            return [] if target is None else [target]
        if target is not None:
            return [Entry(target, key=f"{request.flags['api']}:{target.fingerprint}")]
        if self._is_the_end(request, page):
            return []
        body = _body(request, page)
        return await parsed(len(body), lambda: self._children(request, page, body))

    def _is_ours(self, request: RequestMeta) -> bool:
        return str(request.flags.get("api", "")).startswith(f"{self._name}:")

    def _is_the_end(self, request: RequestMeta, page: Page) -> bool:
        gone = page.status == 404 and request.url != self._first.url
        return page.status == 204 or (gone and self._paging.may_end_with_404)

    def _children(self, request: RequestMeta, page: Page, body: bytes) -> list[RequestMeta | Entry]:
        answer = _answer(request, body)
        items = [] if self._item_url_path is None else self._items(request, page, answer)
        following = self._paging.after(request, page, answer)
        return [*items] if following is None else [*items, self._request(following, request.depth)]

    def _request(self, page: PageRequest, depth: int) -> Entry:
        key = f"{self._name}:{blake2b(page.mark.encode(), digest_size=16).hexdigest()}"
        return Entry(RequestMeta(page.url, depth, flags={"api": key}), key=key)

    def _items(self, request: RequestMeta, page: Page, answer: Any) -> list[RequestMeta]:
        items = at(answer, self._items_path)
        if not isinstance(items, list):
            return []
        base, path = url_of(page, request), self._item_url_path or ""
        if len(items) > MOST_LISTED:
            _log.warning("%s: only its first %d items are read", public_url(base), MOST_LISTED)
        texts = (at(item, path) for item in items[:MOST_LISTED])
        urls = [web_url_or_none(text, base) if isinstance(text, str) else None for text in texts]
        if bad := urls.count(None):
            _log.warning("%s: %d items have no URL at %r", public_url(base), bad, path)
        referer, depth = referer_of(base), request.depth + 1
        return [RequestMeta(url, depth, referer) for url in urls if url is not None]


def _check_text(name: str, text: object) -> None:
    if text is not None and not (isinstance(text, str) and is_unicode(text)):
        raise ConfigurationError(f"{name} must be a text, not {shown(text)}")


def _check_page(number: object) -> None:
    if not is_whole_number(number, 0, _LAST_PAGE):
        raise ConfigurationError(
            f"first_page must be a whole number from 0 to {_LAST_PAGE}, not {shown(number)}"
        )


def _check_one_way(
    cursor_path: str | None,
    cursor_param: str | None,
    page_param: str | None,
    last_page_path: str | None,
) -> None:
    if cursor_path is not None and page_param is not None:
        raise ConfigurationError("an API has cursor_path or page_param, not both")
    if cursor_param is not None and cursor_path is None:
        raise ConfigurationError("cursor_param needs cursor_path: where the answer has the cursor")
    if last_page_path is not None and page_param is None:
        raise ConfigurationError("last_page_path needs page_param: what the page number is sent as")


def _body(request: RequestMeta, page: Page) -> bytes:
    """Without it the pages that follow are unknown: so it is a failure, and not the end."""
    if page.status != 200:
        raise FetchError(
            f"{public_url(request.url)}: status {page.status} where a page of the API was wanted",
            retryable=False,
        )
    if page.body is None:
        raise FetchError(f"{public_url(request.url)}: {not_kept(page)}", retryable=False)
    return page.body


def _answer(request: RequestMeta, body: bytes) -> Any:
    try:
        return read_json(body)
    except ValueError as error:
        raise FetchError(f"{public_url(request.url)}: the answer is no JSON: {error}") from None


def api_recipe(
    url: str | URL, loader: Loader, *, recipe_id: str = "api", **paging: Any
) -> FetcherRecipe:
    """Fetch a JSON API; the settings are those of :class:`ApiLocator`."""
    return FetcherRecipe(recipe_id, [ApiLocator(url, **paging)], loader)
