"""A store by its type or its URL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from data_fetcher_core.checking import is_whole_number
from data_fetcher_core.clock import SYSTEM_CLOCK, Clock
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.showing import is_unicode, shown

_DEFAULT_REDIS: dict[str, Any] = {"redis_host": "localhost", "redis_port": 6379, "redis_db": 0}


def create_kv_store(
    store_type: str = "memory",
    *,
    url: str | None = None,
    path: str | PathLike[str] | None = None,
    default_ttl: float | None = None,
    clock: Clock = SYSTEM_CLOCK,
    redis_host: str = "localhost",
    redis_port: int = 6379,
    redis_db: int = 0,
    redis_password: str | None = None,
    redis_key_prefix: str = "",
    op_timeout: float = 10.0,
) -> KeyValueStore:
    """A store of ``memory``, ``sqlite`` or ``redis``, or what a URL says; it opens on first use.

    URLs are ``memory://``, ``sqlite:///relative.db``, ``sqlite:////absolute.db``, ``redis://…``,
    ``rediss://…``, ``redis+cluster://…``, ``redis+sentinel://…/mymaster`` (``rediss+…`` for both)
    and ``unix:///socket``.
    ``clock`` is for memory and SQLite; Redis goes by its server's.
    """
    kind, url = _resolve(store_type, url)
    wanted = _Wanted(
        url=url,
        path=path,
        default_ttl=default_ttl,
        clock=clock,
        server={"redis_host": redis_host, "redis_port": redis_port, "redis_db": redis_db},
        password=redis_password,
        key_prefix=redis_key_prefix,
        op_timeout=op_timeout,
    )
    return _MAKERS[kind](wanted)


@dataclass(frozen=True)
class _Wanted:
    url: str | None
    path: str | PathLike[str] | None
    default_ttl: float | None
    clock: Clock
    server: dict[str, Any]
    password: str | None
    key_prefix: str
    op_timeout: float


def _resolve(store_type: str, url: str | None) -> tuple[str, str | None]:
    """Which maker, and the URL if there is one. Messages show no more of a URL than its scheme."""
    if not isinstance(store_type, str):
        raise ConfigurationError(
            f"store_type must be a string, not {type(store_type).__name__}: {_KNOWN}"
        )
    if "://" in store_type:
        if url is not None:
            raise ConfigurationError(
                "a URL is given twice, as store_type and as url: leave one out"
            )
        return _kind_of(store_type), store_type
    if store_type not in _MAKERS:
        told = shown(store_type) if store_type.isalnum() else "this text"
        raise ConfigurationError(f"{told} is no type of store: {_KNOWN}")
    if url is not None and _kind_of(url) != store_type:
        raise ConfigurationError(
            f"store_type is {store_type!r} but the scheme of url is {_scheme(url)!r}: "
            "leave store_type out, or make them agree"
        )
    return store_type, url


def _kind_of(url: str) -> str:
    scheme = _scheme(url)
    if scheme not in _KINDS:
        raise ConfigurationError(f"{scheme!r} is no scheme of a store's URL: {_KNOWN}")
    return _KINDS[scheme]


def _scheme(url: str) -> str:
    scheme, separator, _ = url.partition("://") if isinstance(url, str) else ("", "", "")
    return scheme.lower() if separator else ""


def _make_memory(wanted: _Wanted) -> KeyValueStore:
    from data_fetcher_core.kv_store.memory import MemoryStore  # noqa: PLC0415 - only what is used

    if wanted.path is not None or wanted.url not in {None, "memory://"}:
        raise ConfigurationError("a memory store has no place: leave path out, or use sqlite")
    return MemoryStore(default_ttl=wanted.default_ttl, clock=wanted.clock)


def _make_sqlite(wanted: _Wanted) -> KeyValueStore:
    from data_fetcher_core.kv_store.sqlite import SQLiteStore  # noqa: PLC0415 - only what is used

    path = wanted.path if wanted.url is None else _path_in(wanted.url, wanted.path)
    if not path:
        raise ConfigurationError(
            "a sqlite store needs a file: path='runs.db', sqlite:///runs.db (relative) or "
            "sqlite:////var/lib/runs.db (absolute)"
        )
    return SQLiteStore(path, default_ttl=wanted.default_ttl, clock=wanted.clock)


def _path_in(url: str, path: str | PathLike[str] | None) -> str:
    if path is not None:
        raise ConfigurationError(f"the file is given twice, by url and by path={shown(path)}")
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("//no-path")
    if parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError(
            "a URL of SQLite must be sqlite:/// and a path, with '?' and '#' percent-encoded: "
            "sqlite:///runs.db (relative) or sqlite:////var/lib/runs.db (absolute)"
        )
    return unquote(parts.path.removeprefix("/"))


def _make_redis(wanted: _Wanted) -> KeyValueStore:
    from data_fetcher_core.kv_store.redis import RedisStore  # noqa: PLC0415 - only what is used

    if wanted.path is not None:
        raise ConfigurationError("path is for sqlite; a Redis store has a url or redis_host")
    return RedisStore(
        _redis_url(wanted.server) if wanted.url is None else _only(wanted.url, wanted.server),
        password=wanted.password,
        key_prefix=wanted.key_prefix,
        op_timeout=wanted.op_timeout,
        default_ttl=wanted.default_ttl,
    )


def _only(url: str, server: dict[str, Any]) -> str:
    for name, default in _DEFAULT_REDIS.items():
        if server[name] != default:
            raise ConfigurationError(f"the server is given twice, by url and by {name}: choose one")
    return url


def _redis_url(server: dict[str, Any]) -> str:
    host, port, db = server["redis_host"], server["redis_port"], server["redis_db"]
    if not isinstance(host, str) or not host or not is_unicode(host):
        raise ConfigurationError(f"redis_host is a host's name or address, not {shown(host)}")
    _check_number("redis_port", port, 1, 65_535)
    _check_number("redis_db", db, 0, 2**31 - 1)
    return f"redis://{f'[{host}]' if ':' in host else quote(host, safe='')}:{port}/{db}"


def _check_number(name: str, value: int, least: int, most: int) -> None:
    if not is_whole_number(value, least, most):
        raise ConfigurationError(f"{name} is a number from {least} to {most}, not {shown(value)}")


_MAKERS: dict[str, Callable[[_Wanted], KeyValueStore]] = {
    "memory": _make_memory,
    "sqlite": _make_sqlite,
    "redis": _make_redis,
}
_KINDS = {
    "memory": "memory",
    "sqlite": "sqlite",
    "redis": "redis",
    "rediss": "redis",
    "redis+cluster": "redis",
    "rediss+cluster": "redis",
    "redis+sentinel": "redis",
    "rediss+sentinel": "redis",
    "unix": "redis",
}
_KNOWN = (
    f"use {', '.join(map(repr, _MAKERS))}, or a URL with one of the schemes {', '.join(_KINDS)}"
)
