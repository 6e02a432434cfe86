"""Bytes by key, in order, atomically: memory, SQLite, Redis, or a store of your own."""

from data_fetcher_core.kv_store.base import (
    ChangeCounter,
    KeyValueStore,
    ScriptHost,
    Transaction,
)
from data_fetcher_core.kv_store.factory import create_kv_store
from data_fetcher_core.kv_store.transactional import TransactionalStore

__all__ = [
    "ChangeCounter",
    "KeyValueStore",
    "ScriptHost",
    "Transaction",
    "TransactionalStore",
    "create_kv_store",
]
