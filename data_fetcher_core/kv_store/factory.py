"""A store by its type or its URL."""

from __future__ import annotations

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.memory import MemoryStore


def create_kv_store(
    store_type: str = "memory", *, default_ttl: float | None = None
) -> KeyValueStore:
    if store_type in {"memory", "memory://"}:
        return MemoryStore(default_ttl=default_ttl)
    raise ConfigurationError(f"unknown store {store_type!r}")
