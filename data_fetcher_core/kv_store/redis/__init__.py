"""A store in Redis: one server, a server behind TLS, or a cluster."""

from data_fetcher_core.kv_store.redis.store import RedisStore

__all__ = ["RedisStore"]
