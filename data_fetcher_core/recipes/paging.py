"""Three ways in which an API tells its next page. Values, and pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from yarl import URL

from data_fetcher_core.core import Page, RequestMeta
from data_fetcher_core.errors import FetchError
from data_fetcher_core.recipes.answers import url_of
from data_fetcher_core.recipes.json_paths import at
from data_fetcher_core.recipes.link_header import next_link
from data_fetcher_core.recipes.web_urls import web_url
from data_fetcher_core.urls import public_url


class PageRequest(NamedTuple):
    """Where a page is, and what tells it from every other: a page given twice is fetched once."""

    url: URL
    mark: str


class Paging(Protocol):
    """``may_end_with_404`` says whether a page that is not there is the end."""

    @property
    def may_end_with_404(self) -> bool: ...

    def first(self, url: URL) -> PageRequest: ...

    def after(self, request: RequestMeta, page: Page, answer: Any) -> PageRequest | None:
        """The page after this one; ``None`` if there is none."""


@dataclass(frozen=True, slots=True)
class CursorPaging:
    """The answer holds a cursor, to be sent as a parameter; without one, it is the next URL."""

    path: str
    param: str | None = None

    may_end_with_404 = False

    def first(self, url: URL) -> PageRequest:
        return PageRequest(url, "first")

    def after(self, request: RequestMeta, page: Page, answer: Any) -> PageRequest | None:
        cursor = at(answer, self.path)
        if cursor is None or cursor is False or cursor == "":
            return None
        if isinstance(cursor, dict | list | bool):
            raise _fault(request, f"{self.path!r} leads to no cursor, but to {cursor!r:.80}")
        if self.param is None:
            url = _absolute(request, page, str(cursor))
        else:
            url = request.url.update_query({self.param: str(cursor)})
        return PageRequest(url, f"cursor:{cursor}")


@dataclass(frozen=True, slots=True)
class PageNumberPaging:
    """Pages have numbers, up to the one that the answer calls the last, or to an empty one."""

    param: str
    first_page: int = 1
    last_path: str | None = None
    items_path: str = ""

    may_end_with_404 = True

    def first(self, url: URL) -> PageRequest:
        return self._page(url, self.first_page)

    def after(self, request: RequestMeta, page: Page, answer: Any) -> PageRequest | None:
        number = self._number(request)
        last = None if self.last_path is None else _whole(at(answer, self.last_path))
        ended = self._is_empty(request, answer, number) if last is None else number >= last
        return None if ended else self._page(request.url, number + 1)

    def _page(self, url: URL, number: int) -> PageRequest:
        return PageRequest(url.update_query({self.param: str(number)}), f"page:{number}")

    def _number(self, request: RequestMeta) -> int:
        number = _whole(request.url.query.get(self.param))
        return self.first_page if number is None else number

    def _is_empty(self, request: RequestMeta, answer: Any, number: int) -> bool:
        items = at(answer, self.items_path)
        if isinstance(items, list) or (items is None and number != self.first_page):
            return not items
        raise _fault(request, f"{self.items_path!r} leads to no list of items: {items!r:.80}")


@dataclass(frozen=True, slots=True)
class LinkHeaderPaging:
    """The ``Link`` header says where the next page is."""

    may_end_with_404 = False

    def first(self, url: URL) -> PageRequest:
        return PageRequest(url, f"link:{url}")

    def after(self, request: RequestMeta, page: Page, answer: Any) -> PageRequest | None:
        target = next_link(page.headers.get("link", ""))
        if target is None:
            return None
        url = _absolute(request, page, target)
        return PageRequest(url, f"link:{url}")


def _absolute(request: RequestMeta, page: Page, target: str) -> URL:
    try:
        return web_url(target, url_of(page, request))
    except ValueError as error:
        raise _fault(request, f"the next page is at no URL ({error}): {target!r:.80}") from None


def _whole(value: object) -> int | None:
    try:
        return int(value) if isinstance(value, int | str) else None
    except ValueError:
        return None


def _fault(request: RequestMeta, what: str) -> FetchError:
    return FetchError(f"{public_url(request.url)}: {what}", retryable=False)
