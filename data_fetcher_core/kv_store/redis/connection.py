"""Connections to one server: lent for one command, and taken back only when its reply was read.

The pool is our own, over the client's plain connections. That is what makes two promises easy to
see: a command is sent once, and a connection with an unread reply is never used again. (The pools
of the client send again by themselves, and its cluster client sends ASKING on one connection and
the command it is for on another.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from ssl import TLSVersion
from typing import Any

from hiredis import pack_command
from redis import exceptions as said
from redis.asyncio import connection as client
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from data_fetcher_core.kv_store.redis.address import Endpoint, RedisAddress

Command = Sequence[Any]
# A peer that does not answer our goodbye is left without.
_GOODBYE = 1.0
# The oldest TLS is named, as some systems would let Python speak one that is broken.
_TRUST: dict[str, Any] = {
    "ssl_cert_reqs": "required",
    "ssl_check_hostname": True,
    "ssl_min_version": TLSVersion.TLSv1_2,
}


class _Wire(client.AbstractConnection):
    """What we ask of a connection beyond what the client's offers."""

    async def disconnect(self, nowait: bool = False, **details: Any) -> None:  # type: ignore[override]
        # A plain close waits for bytes to be flushed, or for a TLS goodbye, to a peer that may be
        # gone; the socket would stay open for as long.
        if nowait:
            self.abort()
        await super().disconnect(nowait=nowait, **details)

    def abort(self) -> None:
        """Close the socket now. A command under way fails as if the server had left."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def is_clean(self) -> bool:
        """Whether the peer is still there and has said nothing unasked."""
        look = self.can_read if hasattr(self, "can_read") else self.can_read_destructive
        try:
            return not await look()
        except said.RedisError:
            return False


class _TcpWire(_Wire, client.Connection):
    pass


class _TlsWire(_Wire, client.SSLConnection):
    pass


class _SocketWire(_Wire, client.UnixDomainSocketConnection):
    pass


def make_wire(address: RedisAddress, endpoint: Endpoint | None) -> _Wire:
    """An unconnected connection. It never sends twice, and its time-outs are its caller's."""
    common: dict[str, Any] = {
        "db": address.db,
        "username": address.username,
        "password": address.password,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "health_check_interval": 0,
        "socket_timeout": None,
        "socket_connect_timeout": None,
    }
    if endpoint is None:
        return _SocketWire(path=address.path, **common)
    common |= {"host": endpoint.host, "port": endpoint.port, "socket_keepalive": True}
    if not address.is_tls:
        return _TcpWire(**common)
    return _TlsWire(**common, **{**_TRUST, **address.tls})


class Pool:
    """All connections to one server from one event loop."""

    def __init__(
        self,
        make: Callable[[], _Wire],
        greet: Callable[[bytes | None], None],
        size: int,
        *,
        greet_always: bool = False,
    ) -> None:
        """``greet`` hears what the server says of itself, once or on every new connection."""
        self._make = make
        self._greet = greet
        self._greet_always = greet_always
        self._greeted = False
        self._size = size
        self._room = asyncio.Semaphore(size)
        self._idle: list[_Wire] = []
        self._busy: set[_Wire] = set()

    async def execute(self, command: Command, *, blocking: bool = False) -> Any:
        """The reply. A command that blocks the connection takes no room from the others."""
        room: AbstractAsyncContextManager[Any] = nullcontext() if blocking else self._room
        async with room:
            return await self._lend(lambda wire: _exchange(wire, command))

    async def execute_asking(self, command: Command) -> Any:
        """The same at a node that is about to take over the slot."""

        async def ask(wire: _Wire) -> Any:
            await _exchange(wire, ["ASKING"])
            return await _exchange(wire, command)

        async with self._room:
            return await self._lend(ask)

    async def forget_idle(self) -> None:
        """The next command connects anew, and resolves the host's name anew."""
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)

    async def retire(self) -> None:
        """Commands under way end in peace, and their connections with them."""
        self._size = 0
        await self.forget_idle()

    async def break_off(self) -> None:
        """Close every connection without a word; commands under way fail."""
        self._size = 0
        for wire in self._busy:
            wire.abort()
        await self.forget_idle()

    async def close(self) -> None:
        """Close every connection; commands under way fail."""
        self._size = 0
        for wire in self._busy:
            wire.abort()
        while self._idle:
            await _part(self._idle.pop())

    def abandon(self) -> None:
        """The event loop is closed: keep the streams from asking it to close them."""
        for wire in (*self._idle, *self._busy):
            with suppress(RuntimeError):
                wire.abort()

    async def _lend(self, use: Callable[[_Wire], Awaitable[Any]]) -> Any:
        wire = self._idle.pop() if self._idle else self._make()
        self._busy.add(wire)
        try:
            await self._prepare(wire)
            reply = await use(wire)
        except said.ResponseError:  # an answer like any other: it was read to its end
            await self._take_back(wire)
            raise
        except BaseException:
            await wire.disconnect(nowait=True)
            raise
        else:
            await self._take_back(wire)
            return reply
        finally:
            self._busy.discard(wire)

    async def _prepare(self, wire: _Wire) -> None:
        is_new = not (wire.is_connected and await wire.is_clean())
        if is_new:
            await wire.disconnect(nowait=True)
            await wire.connect()  # type: ignore[no-untyped-call]
        if not self._greeted or (is_new and self._greet_always):
            await self._meet(wire)

    async def _meet(self, wire: _Wire) -> None:
        try:
            info = await _exchange(wire, ["INFO"])
        except said.NoPermissionError:
            info = None
        if not isinstance(info, bytes | None):
            raise said.InvalidResponse(f"INFO was answered by {type(info).__name__}")
        self._greet(info)
        self._greeted = True

    async def _take_back(self, wire: _Wire) -> None:
        if wire.is_connected and len(self._idle) < self._size:
            self._idle.append(wire)
        else:
            await wire.disconnect(nowait=True)


async def ask_once(wire: _Wire, command: Command) -> Any:
    """The reply, over a connection that is opened and closed for it."""
    try:
        await wire.connect()  # type: ignore[no-untyped-call]
        return await _exchange(wire, command)
    finally:
        await wire.disconnect(nowait=True)


async def _exchange(wire: _Wire, command: Command) -> Any:
    await wire.send_packed_command([_packed(command)])
    return await wire.read_response()


def _packed(command: Command) -> bytes:
    try:
        packed: bytes = pack_command(tuple(command))
    except TypeError as error:
        raise said.DataError(str(error)) from error
    return packed


async def _part(wire: _Wire) -> None:
    try:
        async with asyncio.timeout(_GOODBYE):
            await wire.disconnect()
    except (TimeoutError, OSError, said.RedisError):
        wire.abort()
