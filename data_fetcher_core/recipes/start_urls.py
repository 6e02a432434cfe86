"""Giving a list of URLs, some at a time, from where it was left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from yarl import URL

from data_fetcher_core.core import RequestMeta

_BATCH = 1_000


class StartUrls:
    """A list of URLs and how many of them were given."""

    def __init__(self, urls: Sequence[URL], flags: Mapping[str, Any] | None = None) -> None:
        self.urls = tuple(urls)
        self._flags = flags
        self._given = 0

    def next_requests(self) -> list[RequestMeta]:
        start = self._given
        self._given = min(start + _BATCH, len(self.urls))
        return [RequestMeta(url, flags=self._flags) for url in self.urls[start : self._given]]

    def checkpoint(self) -> dict[str, int]:
        return {"given": self._given}

    def restore(self, state: Mapping[str, int]) -> None:
        self._given = state["given"]
