"""The key-value verbs, once, for every store that can run a function atomically."""

from __future__ import annotations

import struct
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from data_fetcher_core.clock import SYSTEM_CLOCK, Clock
from data_fetcher_core.kv_store.base import CountsKeys, KeyValueStore, Transaction
from data_fetcher_core.kv_store.values import (
    check_limit,
    check_ttl,
    decode_value,
    encode_text,
    encode_value,
)

T = TypeVar("T")

# Families of keys. The queue's own keys begin with b"q" and never meet these.
_VALUES = b"v"
_EXPIRIES = b"x"
_INSTANT = struct.Struct(">Q")
_NEVER = 0
_PAGE = 1_000
# Writers remove a few outlived values each, so that none stays for ever and no write is slow.
_PURGED_PER_PUT = 4


class TransactionalStore(KeyValueStore):
    """A store whose one primitive is ``transact``; write that and ``close``, get the rest."""

    def __init__(self, *, default_ttl: float | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._default_ttl = check_ttl(default_ttl)
        self._clock = clock

    @abstractmethod
    async def transact(self, fn: Callable[[Transaction], T], *, urgent: bool = False) -> T:
        """Run ``fn`` atomically and return what it returns, once that is durable.

        ``fn`` touches only its argument and may run more than once. If it raises, nothing it did
        remains and the error is the caller's. ``urgent`` marks what must pass even when there is
        no room left for new data (settling); a store without a reserve ignores it.
        """

    async def put(
        self, key: str, value: Any, ttl: float | None = None, prefix: str | None = None
    ) -> None:
        where, encoded = _value_key(key, prefix), encode_value(value)
        ttl = check_ttl(ttl) if ttl is not None else self._default_ttl
        now = self._now()
        expires_at = _NEVER if ttl is None else now + int(ttl * 1e6)

        def step(tx: Transaction) -> None:
            _purge(tx, now)
            _unlist(tx, where)
            tx.put_many([(where, _INSTANT.pack(expires_at) + encoded)])
            if expires_at:
                tx.put_many([(_expiry_key(expires_at, where), b"")])

        await self.transact(step)

    async def get(self, key: str, default: Any = None, prefix: str | None = None) -> Any:
        found = await self._live(_value_key(key, prefix))
        return default if found is None else decode_value(found)

    async def exists(self, key: str, prefix: str | None = None) -> bool:
        return await self._live(_value_key(key, prefix)) is not None

    async def delete(self, key: str, prefix: str | None = None) -> bool:
        where, now = _value_key(key, prefix), self._now()

        def step(tx: Transaction) -> bool:
            live = _live_part(tx.get_many([where])[0], now) is not None
            _unlist(tx, where)
            tx.delete_many([where])
            return live

        return await self.transact(step)

    async def range_get(
        self,
        start_key: str,
        end_key: str | None = None,
        limit: int | None = None,
        prefix: str | None = None,
    ) -> list[tuple[str, Any]]:
        family = _family(prefix)
        start = family + encode_text(start_key, "start_key")
        end = family_end(family) if end_key is None else family + encode_text(end_key, "end_key")
        most, now = check_limit(limit), self._now()
        pairs = await self.transact(lambda tx: _live_pairs(tx, start, end, most, now))
        return [(key[len(family) :].decode(), decode_value(value)) for key, value in pairs]

    async def _live(self, where: bytes) -> bytes | None:
        now = self._now()
        return await self.transact(lambda tx: _live_part(tx.get_many([where])[0], now))

    def _now(self) -> int:
        instant = self._clock.store_now()
        return round((time.time() if instant is None else instant) * 1e6)


def family_end(family: bytes) -> bytes:
    """The first key after all that begin with ``family``."""
    stripped = family.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])


def count_keys(tx: Transaction, family: bytes) -> int:
    """How many keys begin with ``family``, with never more than a page of them in memory."""
    start, end = family, family_end(family)
    if isinstance(tx, CountsKeys):
        return tx.count(start, end)
    counted = 0
    while page := tx.range(start, end, _PAGE):
        counted += len(page)
        start = page[-1][0] + b"\x00"
    return counted


def _family(prefix: str | None) -> bytes:
    text = encode_text(prefix or "", "prefix")
    return _VALUES + struct.pack(">I", len(text)) + text


def _value_key(key: str, prefix: str | None) -> bytes:
    return _family(prefix) + encode_text(key, "key")


def _expiry_key(expires_at: int, where: bytes) -> bytes:
    return _EXPIRIES + _INSTANT.pack(expires_at) + where


def _live_part(stored: bytes | None, now: int) -> bytes | None:
    if stored is None:
        return None
    (expires_at,) = _INSTANT.unpack_from(stored)
    return None if expires_at != _NEVER and expires_at <= now else stored[_INSTANT.size :]


def _live_pairs(
    tx: Transaction, start: bytes, end: bytes, most: int | None, now: int
) -> list[tuple[bytes, bytes]]:
    """The limit counts living values only, so the view is read on until it is reached."""
    found: list[tuple[bytes, bytes]] = []
    while most is None or len(found) < most:
        page = tx.range(start, end, None if most is None else most - len(found))
        alive = ((key, _live_part(stored, now)) for key, stored in page)
        found += [(key, value) for key, value in alive if value is not None]
        if most is None or not page:
            break
        start = page[-1][0] + b"\x00"
    return found


def _unlist(tx: Transaction, where: bytes) -> None:
    stored = tx.get_many([where])[0]
    if stored is None:
        return
    (expires_at,) = _INSTANT.unpack_from(stored)
    if expires_at != _NEVER:
        tx.delete_many([_expiry_key(expires_at, where)])


def _purge(tx: Transaction, now: int) -> None:
    past = tx.range(_EXPIRIES, _EXPIRIES + _INSTANT.pack(now + 1), _PURGED_PER_PUT)
    tx.delete_many([key for key, _ in past])
    tx.delete_many([key[1 + _INSTANT.size :] for key, _ in past])
