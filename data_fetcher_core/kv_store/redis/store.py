"""The store in Redis: key-value verbs, and a host for the queue's scripts.

Nothing is sent twice. A command whose reply is lost raises :class:`StoreUnavailable`, and whoever
sent it knows whether to send it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from redis import exceptions as said

from data_fetcher_core.checking import is_number, is_whole_number
from data_fetcher_core.deadlines import within
from data_fetcher_core.errors import (
    ConfigurationError,
    DataFetcherError,
    StoreCorrupt,
    StoreUnavailable,
    ValidationError,
)
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.redis.address import parse_address
from data_fetcher_core.kv_store.redis.errors import explain, puts_location_in_doubt
from data_fetcher_core.kv_store.redis.keys import Family, escape, family
from data_fetcher_core.kv_store.redis.scripts import load_scripts, script_digest
from data_fetcher_core.kv_store.redis.sessions import Sessions
from data_fetcher_core.kv_store.redis.tls import NO_TLS
from data_fetcher_core.kv_store.values import (
    check_limit,
    check_ttl,
    decode_value,
    encode_text,
    encode_value,
)
from data_fetcher_core.showing import shown

# A block with a time-out near 0 lasts for ever on some servers; a long one outlives its reason.
_SHORTEST_BLOCK = 0.05
_LONGEST_BLOCK = 10.0
# Whoever gives up after so many seconds of silence has learned what a time-out would have told:
# a server that stands still refuses nothing, and another may have taken its place.
_SUSPICIOUS = 0.25
_ALL = 2**53
# What the client lets through besides its own errors, when a peer talks nonsense or leaves.
_FOREIGN = (said.RedisError, OSError, EOFError, RuntimeError, ValueError, LookupError)


class RedisStore(KeyValueStore):
    """Connects on first use, from whichever event loop and process that use comes.

    ``op_timeout`` bounds every verb, connecting included. At most ``max_connections`` are open to
    a server for commands; who waits in :meth:`block_on` has one more each.
    """

    key_prefix: str
    """In the form keys begin with: braces escaped."""

    def __init__(
        self,
        url: str,
        *,
        key_prefix: str = "",
        op_timeout: float = 10.0,
        default_ttl: float | None = None,
        password: str | None = None,
        max_connections: int = 64,
    ) -> None:
        self._address = parse_address(url, password=password)
        self._op_timeout = _check_timeout(op_timeout)
        self._default_ttl = check_ttl(default_ttl)
        self._sessions = Sessions(self._address, _check_count(max_connections))
        self.key_prefix = _check_key_prefix(key_prefix)
        self._scripts = load_scripts()

    def __repr__(self) -> str:
        return f"RedisStore({str(self._address)!r}, key_prefix={self.key_prefix!r})"

    async def put(
        self, key: str, value: Any, ttl: float | None = None, prefix: str | None = None
    ) -> None:
        name, encoded, keys = encode_text(key, "key"), encode_value(value), self._family(prefix)
        ttl = check_ttl(ttl) if ttl is not None else self._default_ttl
        lifetime: int | str = "" if ttl is None else max(1, round(ttl * 1000))
        await self.run_script(
            self._scripts["put"],
            [keys.value(name), keys.index],
            [name, encoded, lifetime, keys.stem],
        )

    async def get(self, key: str, default: Any = None, prefix: str | None = None) -> Any:
        where = self._family(prefix).value(encode_text(key, "key"))
        found = await self._execute(["GET", where], where)
        return default if found is None else decode_value(found)

    async def exists(self, key: str, prefix: str | None = None) -> bool:
        where = self._family(prefix).value(encode_text(key, "key"))
        return bool(await self._execute(["EXISTS", where], where))

    async def delete(self, key: str, prefix: str | None = None) -> bool:
        name, keys = encode_text(key, "key"), self._family(prefix)
        return bool(
            await self.run_script(self._scripts["delete"], [keys.value(name), keys.index], [name])
        )

    async def range_get(
        self,
        start_key: str,
        end_key: str | None = None,
        limit: int | None = None,
        prefix: str | None = None,
    ) -> list[tuple[str, Any]]:
        """Up to 1,000 pairs are one atomic step; more are read in several."""
        start: bytes = b"[" + encode_text(start_key, "start_key")
        end = b"+" if end_key is None else b"(" + encode_text(end_key, "end_key")
        most, keys = check_limit(limit), self._family(prefix)
        wanted = _ALL if most is None else most
        pairs: list[tuple[str, Any]] = []
        while start and len(pairs) < wanted:
            reply = await self.run_script(
                self._scripts["range"], [keys.index], [start, end, wanted - len(pairs), keys.stem]
            )
            start, page = _read_page(reply)
            pairs += page
        return pairs

    async def run_script(self, source: str, keys: Sequence[bytes], args: Sequence[Any]) -> Any:
        """A server that does not know the script, or forgot it, is sent all of it."""
        rest = [len(keys), *keys, *args]
        home = keys[0] if keys else b""
        return await self._within(self._op_timeout, self._evaluate(source, rest, home))

    async def block_on(self, keys: Sequence[bytes], timeout: float) -> bytes | None:
        """If it is cancelled, an element may have been taken and lost."""
        block = min(max(timeout, _SHORTEST_BLOCK), _LONGEST_BLOCK)
        popped = await self._within(
            block + self._op_timeout,
            self._sessions.server().execute(["BLPOP", *keys, block], keys[0], blocking=True),
        )
        return None if popped is None else _read_popped(popped)

    async def close(self) -> None:
        """Commands of this event loop that are under way fail as if the server had left."""
        await self._sessions.close()

    async def _evaluate(self, source: str, rest: Sequence[Any], home: bytes) -> Any:
        server = self._sessions.server()
        try:
            return await server.execute(["EVALSHA", script_digest(source), *rest], home)
        except said.NoScriptError:
            return await server.execute(["EVAL", source, *rest], home)

    async def _execute(self, command: Sequence[Any], key: bytes) -> Any:
        return await self._within(self._op_timeout, self._sessions.server().execute(command, key))

    async def _within(self, duration: float, work: Awaitable[Any]) -> Any:
        """What ``work`` answers, or one of our errors by the time ``duration`` is over."""
        failure: DataFetcherError
        now = asyncio.get_running_loop().time
        suspicious_at = now() + duration - self._op_timeout + _SUSPICIOUS
        try:
            with within(duration):
                return await work
        except DataFetcherError:
            raise
        except asyncio.CancelledError:
            if now() >= suspicious_at:
                await self._sessions.server().distrust()
            raise
        except TimeoutError:
            doubtful, failure = True, self._silence(duration)
        except _FOREIGN as error:
            doubtful, failure = puts_location_in_doubt(error), explain(error, self._address)
        # Raised out here, the foreign error is not kept as the context of ours: it may hold what
        # we sent, and with it a password.
        if doubtful:
            await self._sessions.server().distrust()
        try:
            raise failure
        finally:
            # An error that its own traceback holds is kept, and those who wait for it and what
            # they hold with it, until garbage is collected.
            del failure

    def _silence(self, duration: float) -> StoreUnavailable:
        hint = f" ({NO_TLS})" if self._address.is_tls else ""
        return StoreUnavailable(
            f"Redis at {self._address} did not answer within {duration:g} s{hint}"
        )

    def _family(self, prefix: str | None) -> Family:
        return family(self.key_prefix, prefix)


def _read_page(reply: Any) -> tuple[bytes, list[tuple[str, Any]]]:
    """Where to go on, and the pairs before that."""
    try:
        start, *page = reply
        names = (name.decode() for name in page[::2])
        return start, list(zip(names, map(decode_value, page[1::2]), strict=True))
    except (TypeError, ValueError, AttributeError):
        raise _strange(reply) from None


def _read_popped(reply: Any) -> bytes:
    if not isinstance(reply, list) or not reply or not isinstance(reply[0], bytes):
        raise _strange(reply)
    return reply[0]


def _strange(reply: Any) -> StoreCorrupt:
    return StoreCorrupt(f"Redis answered what cannot be true: {shown(reply)}")


def _check_timeout(timeout: float) -> float:
    if not is_number(timeout) or not 0 < timeout < 1e9:
        raise ConfigurationError(f"op_timeout is a number of seconds above 0, not {shown(timeout)}")
    return float(timeout)


def _check_count(count: int) -> int:
    if not is_whole_number(count, 1):
        raise ConfigurationError(f"max_connections is a whole number from 1, not {shown(count)}")
    return count


def _check_key_prefix(key_prefix: str) -> str:
    try:
        encode_text(key_prefix, "key_prefix")
    except ValidationError as error:
        raise ConfigurationError(str(error)) from None
    return escape(key_prefix)
