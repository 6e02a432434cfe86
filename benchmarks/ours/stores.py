"""The store a contender of ours is to use."""

from __future__ import annotations

from typing import Any

from benchmarks.servers import new_sqlite_url


def store_url(given: dict[str, Any]) -> str:
    """``store`` says which: the Redis of this run, or a new file in its folder."""
    urls = {"redis": given.get("redis_url"), "sqlite": new_sqlite_url(given["folder"])}
    return str(urls[given["store"]])
