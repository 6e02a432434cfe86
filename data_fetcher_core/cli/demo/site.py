"""A pretend site: its pages are computed, not downloaded, and the same in every process.

Each host is a tree of pages. A page links to its children, to the page above it and to the front
page. Only the first kind is new to the crawl, and each page is the child of just one: if a single
page were lost, so would be all that lies below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from yarl import URL

from data_fetcher_core.core import Entry, RequestMeta

HOSTS = ("alpha.example", "beta.example", "gamma.example", "delta.example", "epsilon.example")
_CHILDREN = 4


@dataclass(frozen=True, slots=True)
class Site:
    """Pages are numbered through all hosts: 0 to 4 are the front pages, one of each host."""

    pages: int

    def front_pages(self) -> list[RequestMeta]:
        return [RequestMeta(_url(number)) for number in range(min(self.pages, len(HOSTS)))]

    def links(self, page: RequestMeta) -> list[RequestMeta]:
        """What is found on a page, the known and the new."""
        host, place = int(page.url.name) % len(HOSTS), int(page.url.name) // len(HOSTS)
        below = range(_CHILDREN * place + 1, _CHILDREN * (place + 1) + 1)
        linked = [max(place - 1, 0) // _CHILDREN, 0, *below]
        numbers = [there * len(HOSTS) + host for there in linked]
        return [
            RequestMeta(_url(number), depth=page.depth + 1, referer=str(page.url))
            for number in numbers
            if number < self.pages
        ]

    def urls(self) -> frozenset[str]:
        """Every page that can be reached, found by walking the site without any queue."""
        reached: dict[str, RequestMeta] = {}
        waiting = self.front_pages()
        while waiting:
            page = waiting.pop()
            if str(page.url) not in reached:
                reached[str(page.url)] = page
                waiting += self.links(page)
        return frozenset(reached)


def entries(pages: Iterable[RequestMeta]) -> list[Entry]:
    """A lane for each host, and a key for each page, so that none is taken in twice."""
    return [Entry(page, lane=page.url.host, key=page.fingerprint) for page in pages]


def _url(number: int) -> URL:
    return URL(f"https://{HOSTS[number % len(HOSTS)]}/page/{number}")
