"""Which engine a store gets."""

from __future__ import annotations

from data_fetcher_core.clock import Clock
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.kv_store.base import KeyValueStore, ScriptHost
from data_fetcher_core.kv_store.transactional import TransactionalStore
from data_fetcher_core.queue.engine import QueueEngine
from data_fetcher_core.queue.scripted_engine import ScriptedEngine
from data_fetcher_core.queue.transactional_engine import TransactionalEngine


def engine_for(
    store: KeyValueStore, namespace: bytes, clock: Clock, *, follows: bool = True
) -> QueueEngine:
    """By what the store can do, not by what it is."""
    if isinstance(store, TransactionalStore):
        return TransactionalEngine(store, namespace, clock, follows=follows)
    if isinstance(store, ScriptHost):
        return ScriptedEngine(store, namespace.decode(), clock, follows=follows)
    raise ConfigurationError(
        f"{type(store).__name__} cannot hold a queue: a store needs transact(), as "
        "TransactionalStore has it"
    )
