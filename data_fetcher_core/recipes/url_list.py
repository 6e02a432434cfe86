"""Fetching what a text file lists, some at a time, from where it was left."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from anyio import to_thread

from data_fetcher_core.checking import is_whole_number
from data_fetcher_core.core import FetcherRecipe, FetchRunContext, Loader, RequestMeta
from data_fetcher_core.errors import ConfigurationError, FetchError
from data_fetcher_core.queue.engine import MOST_CHILDREN
from data_fetcher_core.recipes.answers import page_of, redirect_of
from data_fetcher_core.recipes.listed_urls import (
    MOST_BAD_KEPT,
    BadLine,
    Batch,
    Place,
    digest_if_unchanged,
    open_list,
    read_urls,
)
from data_fetcher_core.showing import shown

_log = logging.getLogger(__name__)


class UrlListLocator:
    """Gives the URLs of a text file, or of one that gzip compressed (``.gz``).

    Empty lines and those that begin with ``#`` are passed over. Lines that are no URL are counted
    in ``bad_count`` and logged, and the first 100 of them kept in ``bad_lines``; if all are, it is
    a failure. A file that is not the one the run was begun with is refused.
    """

    def __init__(self, path: str | PathLike[str], *, batch: int = 1_000) -> None:
        if not is_whole_number(batch, 1, MOST_CHILDREN):
            raise ConfigurationError(
                f"batch must be a whole number from 1 to {MOST_CHILDREN}, not {shown(batch)}"
            )
        if not isinstance(path, str | PathLike):
            raise ConfigurationError(f"path must be that of a file, not {shown(path)}")
        self.path = Path(path)
        self.bad_lines: list[BadLine] = []
        self.bad_count = 0
        self._most = batch
        self._place = Place()
        self._digest = ""
        self._file: BinaryIO | None = None

    async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
        batch = await to_thread.run_sync(self._read)
        if batch.bad and not batch.urls and self._place == Place():
            raise self._without_urls(batch)
        # Only now: what a cancelled call has read is read again.
        self._place = batch.place
        self._report(batch)
        if not batch.urls:
            self._close()
        return [RequestMeta(url) for url in batch.urls]

    def checkpoint(self) -> dict[str, Any]:
        place = {"offset": self._place.offset, "line": self._place.line}
        return {**place, "sha256": self._digest, "bad": self.bad_count}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there; that the file is still the same is checked before it is read."""
        self._close()
        self._place = Place(state["offset"], state["line"])
        self._digest = state["sha256"]
        self.bad_count = state["bad"]

    async def handle_url_processed(
        self, request: RequestMeta, result: object, ctx: FetchRunContext
    ) -> list[RequestMeta]:
        """Where the loader does not follow redirects, their targets are requests."""
        page = page_of(result)
        target = None if page is None else redirect_of(request, page)
        return [] if target is None else [target]

    def _read(self) -> Batch:
        file = self._file or self._open()
        return read_urls(file, self._place, self._most)

    def _open(self) -> BinaryIO:
        self._digest = digest_if_unchanged(self.path, self._digest)
        self._file = open_list(self.path)
        weakref.finalize(self, self._file.close)
        return self._file

    def _without_urls(self, batch: Batch) -> FetchError:
        """Nothing of it is remembered: the file may be mended, and tried again."""
        self._close()
        self._digest = ""
        line, reason = batch.bad[0]
        return FetchError(
            f"{self.path}: none of its {batch.bad_count} lines is a URL; "
            f"the first, line {line}: {reason}",
            retryable=False,
        )

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _report(self, batch: Batch) -> None:
        self.bad_lines += batch.bad[: MOST_BAD_KEPT - len(self.bad_lines)]
        self.bad_count += batch.bad_count
        for line, reason in batch.bad:
            _log.warning("%s, line %d is passed over: %s", self.path, line, reason)
        if batch.bad_count > len(batch.bad):
            more = batch.bad_count - len(batch.bad)
            _log.warning("%s: %d lines more are passed over", self.path, more)


def url_list_recipe(
    path: str | PathLike[str], loader: Loader, *, recipe_id: str = "url-list"
) -> FetcherRecipe:
    """Fetch what a file lists."""
    return FetcherRecipe(recipe_id, [UrlListLocator(path)], loader)
