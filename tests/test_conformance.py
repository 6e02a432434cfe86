"""The public kit, run on the three stores as a store's author would run it on a fourth."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.kv_store.redis import RedisStore
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.testing import check_queue, check_store


class Maker:
    """Makes a new, empty store each time; ``reopen`` opens the last one again."""

    def __init__(self, make: Callable[[int], KeyValueStore]) -> None:
        self._make = make
        self._numbers = itertools.count()
        self._last = 0

    def __call__(self) -> KeyValueStore:
        self._last = next(self._numbers)
        return self._make(self._last)

    def reopen(self) -> KeyValueStore:
        return self._make(self._last)


@pytest.fixture
def maker(store_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Maker:
    if store_kind == "memory":
        return Maker(lambda _: MemoryStore())
    if store_kind == "sqlite":
        return Maker(lambda number: SQLiteStore(tmp_path / f"{number}.db"))
    url = request.getfixturevalue("redis_url")
    return Maker(lambda number: RedisStore(url, key_prefix=f"{number}:"))


async def test_it_is_a_store(maker: Maker, store_kind: str) -> None:
    await check_store(maker, reopen=None if store_kind == "memory" else maker.reopen)


async def test_it_can_hold_a_queue(maker: Maker) -> None:
    await check_queue(maker)
