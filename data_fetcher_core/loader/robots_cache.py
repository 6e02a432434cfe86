"""What robots.txt said, remembered for a day: here, and in the store for whoever comes later."""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import suppress
from typing import Any

from data_fetcher_core.errors import StoreError
from data_fetcher_core.kv_store import KeyValueStore
from data_fetcher_core.loader.robots_rules import LONGEST, RobotsRules
from data_fetcher_core.loader.urls import Origin

DAY = 86_400.0
_PREFIX = "robots"
_MOST_ORIGINS = 10_000
# Parsed rules take some thirty times the memory of their text.
_MOST_TEXT = 4 * 1024 * 1024


class RulesInMemory:
    """Rules by origin; those not asked for longest are forgotten first."""

    def __init__(self, most_origins: int = _MOST_ORIGINS, most_text: int = _MOST_TEXT) -> None:
        self._rules: OrderedDict[Origin, tuple[float, RobotsRules]] = OrderedDict()
        self._most_origins = most_origins
        self._most_text = most_text
        self._text = 0

    def get(self, origin: Origin) -> RobotsRules | None:
        entry = self._rules.get(origin)
        if entry is None:
            return None
        until, rules = entry
        if until < time.monotonic():
            self._forget(origin)
            return None
        self._rules.move_to_end(origin)
        return rules

    def put(self, origin: Origin, rules: RobotsRules, lifetime: float) -> None:
        self._forget(origin)
        self._rules[origin] = (time.monotonic() + lifetime, rules)
        self._text += len(rules.text)
        while len(self._rules) > 1 and (
            len(self._rules) > self._most_origins or self._text > self._most_text
        ):
            self._forget(next(iter(self._rules)))

    def _forget(self, origin: Origin) -> None:
        if (entry := self._rules.pop(origin, None)) is not None:
            self._text -= len(entry[1].text)


class TextsInStore:
    """What was said, by token and origin. A store that fails is only a cache that misses."""

    def __init__(self, store: KeyValueStore | None, token: str) -> None:
        self._store = store
        self._token = token

    async def get(self, origin: Origin) -> tuple[str, float] | None:
        """The text and for how long it still counts."""
        if self._store is None:
            return None
        with suppress(StoreError):
            return _read(await self._store.get(self._key(origin), prefix=_PREFIX), time.time())
        return None

    async def put(self, origin: Origin, text: str) -> None:
        if self._store is None:
            return
        value = {"text": text, "fetched_at": time.time()}
        with suppress(StoreError):
            await self._store.put(self._key(origin), value, ttl=DAY, prefix=_PREFIX)

    def _key(self, origin: Origin) -> str:
        scheme, host, port = origin
        return f"{scheme}://{host}:{port} {self._token}"


def _read(value: Any, now: float) -> tuple[str, float] | None:
    if not isinstance(value, dict):
        return None
    text, fetched_at = value.get("text"), value.get("fetched_at")
    if not isinstance(text, str) or not isinstance(fetched_at, int | float):
        return None
    left = min(fetched_at + DAY - now, DAY)
    return (text, left) if left > 0 and len(text) <= LONGEST else None
