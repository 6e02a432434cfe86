"""Opening the store of a command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from data_fetcher_core.cli.places import Place
from data_fetcher_core.errors import ConfigurationError, StoreError
from data_fetcher_core.kv_store import KeyValueStore

_GOODBYE = 2.0


class StoreRefused(StoreError):
    """The store is there, and cannot be used as it is: a wrong password, an evicting server."""


@asynccontextmanager
async def opened(place: Place, *, existing: bool = False) -> AsyncIterator[KeyValueStore]:
    """The store, once it has answered. An ``existing`` one is not made by asking for it."""
    if existing and place.is_missing:
        raise ConfigurationError(f"there are no runs in {place}: nothing was ever kept there")
    store = place.open()
    try:
        await _meet(store)
        yield store
    finally:
        with anyio.move_on_after(_GOODBYE, shield=True):
            await store.close()


async def _meet(store: KeyValueStore) -> None:
    try:
        await store.exists("", prefix="runs")
    except ConfigurationError as error:
        raise StoreRefused(str(error)) from error
