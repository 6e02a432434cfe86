"""Stores by type and by URL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.kv_store.redis import RedisStore

CANARY = "s3cr3t-c4n4ry"


@pytest.mark.parametrize("args", [(), ("memory",), ("memory://",)])
async def test_memory_stores_are_new_and_empty(args: tuple[str, ...]) -> None:
    first, second = create_kv_store(*args), create_kv_store(*args)
    assert isinstance(first, MemoryStore)
    await first.put("key", 1)
    assert await second.get("key") is None


@pytest.mark.parametrize(
    ("store_type", "options", "text"),
    [
        ("redis", {}, "redis://localhost:6379/0"),
        ("redis", {"redis_host": "h", "redis_port": 7, "redis_db": 3}, "redis://h:7/3"),
        ("redis", {"redis_host": "::1"}, "redis://[::1]:6379/0"),
        ("redis", {"redis_password": CANARY}, "redis://localhost:6379/0"),
        ("redis", {"url": "rediss://h/1"}, "rediss://h:6379/1"),
        ("redis://h:7/2", {}, "redis://h:7/2"),
        ("redis://h:7/2", {"redis_password": CANARY}, "redis://h:7/2"),
        ("REDISS://h", {}, "rediss://h:6379/0"),
        ("redis+cluster://a,b", {}, "redis+cluster://a:6379,b:6379"),
        ("rediss+cluster://a", {}, "rediss+cluster://a:6379"),
        ("unix:///run/redis.sock", {}, "unix:///run/redis.sock?db=0"),
    ],
)
def test_redis_stores(store_type: str, options: dict[str, Any], text: str) -> None:
    store = create_kv_store(store_type, redis_key_prefix="app:", **options)
    assert isinstance(store, RedisStore)
    assert repr(store) == f"RedisStore({text!r}, key_prefix='app:')"


async def test_a_redis_store_uses_what_it_was_given(redis_url: str) -> None:
    async with create_kv_store(redis_url, default_ttl=50, redis_key_prefix="app:") as store:
        await store.put("key", 1)
    async with create_kv_store(redis_url) as other:
        assert await other.get("key") is None
        assert isinstance(other, RedisStore)
        left = await other.run_script("return redis.call('PTTL', KEYS[1])", [b"app:{kv:}v:key"], [])
        assert 49_000 < left <= 50_000


@pytest.mark.parametrize("form", ["path", "pathlib", "relative", "absolute", "escaped", "url"])
async def test_sqlite_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "runs of today.db"
    given: dict[str, tuple[str, dict[str, Any]]] = {
        "path": ("sqlite", {"path": "runs of today.db"}),
        "pathlib": ("sqlite", {"path": file}),
        "relative": ("sqlite:///runs of today.db", {}),
        "absolute": (f"sqlite:///{file}", {}),
        "escaped": ("sqlite:///runs%20of%20today.db", {}),
        "url": ("sqlite", {"url": f"sqlite:///{file}"}),
    }
    store_type, options = given[form]
    async with create_kv_store(store_type, **options) as store:
        await store.put("key", 1)
    assert file.exists()


@pytest.mark.parametrize(
    ("store_type", "options", "message"),
    [
        ("postgres", {}, "'postgres' is no type of store.*'memory', 'sqlite', 'redis'"),
        ("", {}, "no type of store"),
        (None, {}, "NoneType"),
        ("ftp://host", {}, "'ftp' is no scheme"),
        ("redis://a", {"url": "redis://b"}, "twice"),
        ("sqlite", {"url": "redis://b"}, "'sqlite'.*'redis'"),
        ("redis", {"url": "localhost:6379"}, "'' is no scheme"),
        ("memory", {"path": "x.db"}, "memory store has no place"),
        ("memory://x", {}, "memory store has no place"),
        ("sqlite", {}, "needs a file"),
        ("sqlite", {"path": ""}, "needs a file"),
        ("sqlite://", {}, "needs a file"),
        ("sqlite:///", {}, "needs a file"),
        ("sqlite://runs.db", {}, "sqlite:///runs.db"),
        ("sqlite:///runs.db?mode=ro", {}, "percent-encoded"),
        ("sqlite:///a.db", {"path": "b.db"}, "twice.*'b.db'"),
        ("redis", {"path": "x.db"}, "path is for sqlite"),
        ("redis", {"redis_port": "6379"}, "redis_port.*'6379'"),
        ("redis", {"redis_port": 0}, "redis_port.*0"),
        ("redis", {"redis_port": True}, "redis_port.*True"),
        ("redis", {"redis_db": -1}, "redis_db.*-1"),
        ("redis", {"redis_host": ""}, "redis_host.*''"),
        ("redis", {"redis_host": None}, "redis_host.*None"),
        ("redis", {"op_timeout": 0}, "op_timeout"),
        ("redis://h", {"redis_host": "other"}, "redis_host"),
        ("redis://h:x", {}, "'h:…'"),
        (f"redis://:{CANARY}@h", {"redis_password": CANARY}, "password is given twice"),
        (f"rediz://:{CANARY}@h", {}, "'rediz' is no scheme"),
        (f":{CANARY}@h", {}, "no type of store"),
    ],
)
def test_what_cannot_be_says_what_can(
    store_type: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        create_kv_store(store_type, **options)
    assert CANARY not in str(caught.value)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError, match="redis_hots"):
        create_kv_store("redis", redis_hots="localhost")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("call", "absent"),
    [
        ("create_kv_store()", ["redis", "sqlite3"]),
        ("create_kv_store('redis')", ["sqlite3"]),
        ("create_kv_store('sqlite', path='x')", ["redis"]),
    ],
)
def test_only_what_is_used_is_imported(call: str, absent: list[str]) -> None:
    program = f"import sys\nfrom data_fetcher_core.kv_store import create_kv_store\n{call}\n"
    program += f"assert not set({absent}) & set(sys.modules)\n"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
