"""Asking a provider for requests, cursor by cursor, in one's own words."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from data_fetcher_core.core import Entry, FetchRunContext, RequestMeta

_log = logging.getLogger(__name__)

Ask = Callable[[Any], Awaitable[tuple[Sequence[RequestMeta | Entry], Any]]]


class CursorLocator:
    """Gives what ``await ask(cursor)`` answers: requests, and the next cursor or ``None``.

    The first cursor is ``start``. A cursor is what JSON holds; it is saved together with the
    requests it came with, so nothing that was given is asked for again. A provider whose cursors
    go round in a circle is not asked for ever.
    """

    def __init__(self, ask: Ask, *, start: Any = None) -> None:
        self._ask = ask
        self._cursor = start
        self._done = False
        # Brent's way to find a circle: compare with one that is remembered ever longer.
        self._remembered = start
        self._steps = 0
        self._until = 1

    async def get_next_urls(self, ctx: FetchRunContext) -> Sequence[RequestMeta | Entry]:
        while not self._done:
            requests, cursor = await self._ask(self._cursor)
            self._go_on(cursor)
            if requests:
                return requests
        return []

    def _go_on(self, cursor: Any) -> None:
        self._cursor = cursor
        self._done = cursor is None or cursor == self._remembered
        if self._done and cursor is not None:
            _log.warning("the cursor %.80r came before: it goes round, and ends here", cursor)
        self._steps += 1
        if self._steps == self._until:
            self._remembered, self._steps, self._until = cursor, 0, self._until * 2

    def checkpoint(self) -> dict[str, Any]:
        return {
            "cursor": self._cursor,
            "done": self._done,
            "circle": [self._remembered, self._steps, self._until],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._cursor = state["cursor"]
        self._done = state["done"]
        self._remembered, self._steps, self._until = state["circle"]
