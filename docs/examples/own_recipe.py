"""An archive: one page for each day, and the articles that it lists."""

from __future__ import annotations

import os
from datetime import date, timedelta

from data_fetcher_core.core import FetcherRecipe, FetchRunContext, Page, RequestMeta
from data_fetcher_core.loader import HttpLoader, HttpOptions
from data_fetcher_core.recipes import links_of

SITE = os.environ.get("ARCHIVE", "http://127.0.0.1:8000")


class Archive:
    def __init__(self, first: date, last: date) -> None:
        self.next, self.last = first, last

    async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
        day, self.next = self.next, self.next + timedelta(days=1)
        return [RequestMeta(f"{SITE}/archive/{day}")] if day <= self.last else []

    def checkpoint(self) -> str:
        return str(self.next)

    def restore(self, state: str) -> None:
        self.next = date.fromisoformat(state)

    async def handle_url_processed(
        self, request: RequestMeta, result: list[Page], ctx: FetchRunContext
    ) -> list[RequestMeta]:
        if request.depth > 0:  # an article
            return []
        links = links_of(result[0].body or b"", request.url)
        return [RequestMeta(link, depth=1) for link in links]


archive = Archive(date(2024, 1, 1), date(2024, 1, 31))
recipe = FetcherRecipe("archive", [archive], HttpLoader(HttpOptions(allow_private=True)))
