"""A faulty network between a client and a Redis server.

The proxy reads requests and replies as whole RESP messages, so a fault hits exactly the message
it is meant for::

    async with RedisProxy(server.port) as proxy:
        proxy.fault(drop_reply, command="EVALSHA", nth=3)
        store = RedisStore(proxy.url)

What happens to one request is an action: a coroutine function over an :class:`Exchange`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from ssl import SSLContext
from types import TracebackType
from typing import Self

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_PUSH = b">"
_ATTRIBUTE = b"|"  # goes before the reply it belongs to
_BULKS = (b"$", b"=", b"!")
_MEMBERS = {b"*": 1, b"~": 1, _PUSH: 1, b"%": 2, _ATTRIBUTE: 2}


class Hangup(Exception):
    """Raised in an action to close both sides of its connection."""


@dataclass(frozen=True)
class Request:
    raw: bytes
    args: tuple[bytes, ...]

    @property
    def command(self) -> str:
        return self.args[0].decode().upper()


class Exchange:
    """One request on its way: forward it, take its reply, send something to the client."""

    def __init__(self, request: Request, wire: _Wire) -> None:
        self.request = request
        self._wire = wire

    async def forward(self) -> None:
        await self._wire.to_server(self.request.raw)

    async def reply(self) -> bytes:
        return await self._wire.next_reply()

    async def send(self, data: bytes) -> None:
        await self._wire.to_client(data)

    def reset(self) -> None:
        """Close towards the client with RST instead of FIN."""
        self._wire.reset_client()
        raise Hangup


Action = Callable[[Exchange], Awaitable[None]]


async def pass_on(exchange: Exchange) -> None:
    await exchange.forward()
    await exchange.send(await exchange.reply())


async def drop_request(exchange: Exchange) -> None:
    """The server never sees it; the connection closes."""
    raise Hangup


async def drop_reply(exchange: Exchange) -> None:
    """The server has run it; the client sees the connection close."""
    await exchange.forward()
    await exchange.reply()
    raise Hangup


async def black_hole(exchange: Exchange) -> None:
    """Neither it nor anything later on this connection gets through; the connection stays open."""
    await asyncio.Event().wait()


async def swallow_reply(exchange: Exchange) -> None:
    """The server has run it; the client hears nothing and the connection stays open."""
    await exchange.forward()
    await exchange.reply()
    await asyncio.Event().wait()


def cut_reply(size: int) -> Action:
    """The first ``size`` bytes of the reply arrive, then the connection is reset."""

    async def act(exchange: Exchange) -> None:
        await exchange.forward()
        await exchange.send((await exchange.reply())[:size])
        # A reset overtakes bytes the client has not read yet; nothing tells us when it has.
        await asyncio.sleep(0.005)
        exchange.reset()

    return act


def delay(*, request: float = 0.0, reply: float = 0.0) -> Action:
    """Seconds of latency, per direction."""

    async def act(exchange: Exchange) -> None:
        await asyncio.sleep(request)
        await exchange.forward()
        answer = await exchange.reply()
        await asyncio.sleep(reply)
        await exchange.send(answer)

    return act


def inject(reply: bytes) -> Action:
    """Answer this instead of asking the server; ``inject(b"-LOADING wait\\r\\n")``."""

    async def act(exchange: Exchange) -> None:
        await exchange.send(reply)

    return act


@dataclass
class Fault:
    """An action for some of the requests that match."""

    action: Action
    command: str | None
    skip: int
    times: float
    hits: int = field(default=0, init=False)

    def takes(self, request: Request) -> bool:
        if self.command not in {None, request.command} or self.times <= 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        self.hits += 1
        return True


class RedisProxy:
    """Listens on a loopback port; ``slice_size`` and ``slice_pause`` shape both directions.

    New connections go to ``target_port``, as those to a name do once it means another host.
    """

    def __init__(self, target_port: int, *, ssl: SSLContext | None = None) -> None:
        self.port = 0
        self.slice_size: int | None = None
        self.slice_pause = 0.0
        self.commands: Counter[str] = Counter()
        self.accepted = 0
        self.target_port = target_port
        self._ssl = ssl
        self._faults: list[Fault] = []
        self._flow = {"requests": asyncio.Event(), "replies": asyncio.Event()}
        self._connections: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self.unblock()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def fault(
        self, action: Action, *, command: str | None = None, nth: int = 1, times: float = 1
    ) -> Fault:
        """Do ``action`` to ``times`` requests, from the ``nth`` match of ``command`` on."""
        added = Fault(action, command, nth - 1, times)
        self._faults.append(added)
        return added

    def heal(self) -> None:
        """Forget all faults; connections already in one stay in it."""
        self._faults.clear()
        self.slice_size = None
        self.unblock()

    def block(self, *directions: str) -> None:
        """Hold back every byte of ``requests``, ``replies`` or both, with all connections open."""
        for direction in directions or tuple(self._flow):
            self._flow[direction].clear()

    def unblock(self) -> None:
        for flowing in self._flow.values():
            flowing.set()

    async def up(self) -> None:
        """Listen, on the port of the last time if there was one."""
        self._listener = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self._ssl, backlog=512
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """Refuse new connections and close those that are open."""
        if self._listener is not None:
            self._listener.close()
        await self.hang_up()

    async def hang_up(self) -> None:
        """Close every open connection; new ones are welcome."""
        ending = list(self._connections)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.down()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        # The task ends quietly when down() cancels it: nobody awaits a stream callback.
        try:
            with suppress(asyncio.CancelledError, OSError, asyncio.IncompleteReadError):
                await self._relay(reader, writer)
        finally:
            self._connections.discard(task)
            await _part(writer)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        wire = _Wire(self, writer, server_writer)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(wire.read_requests(reader))
                tasks.create_task(wire.read_replies(server_reader))
                tasks.create_task(wire.exchange())
        except* (Hangup, OSError, asyncio.IncompleteReadError):
            pass
        finally:
            await _part(server_writer)

    def action_for(self, request: Request) -> Action:
        self.commands[request.command] += 1
        chosen = next((fault for fault in self._faults if fault.takes(request)), None)
        return pass_on if chosen is None else chosen.action

    async def write(self, writer: asyncio.StreamWriter, data: bytes, direction: str) -> None:
        await self._flow[direction].wait()
        size = self.slice_size or max(len(data), 1)
        for start in range(0, len(data), size):
            writer.write(data[start : start + size])
            await writer.drain()
            if self.slice_size:
                await asyncio.sleep(self.slice_pause)


class _Wire:
    """One client's connection and the one to the server that goes with it."""

    def __init__(
        self, proxy: RedisProxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        self._requests: asyncio.Queue[Request] = asyncio.Queue()
        self._replies: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._idle = asyncio.Event()
        self._proxy = proxy
        self._client = client
        self._server = server

    async def read_requests(self, reader: asyncio.StreamReader) -> None:
        """Runs ahead of the exchanges, so that a client that leaves is noticed at once."""
        while True:
            self._requests.put_nowait(await read_request(reader))

    async def read_replies(self, reader: asyncio.StreamReader) -> None:
        """Replies wait for their exchange; when the server leaves, those it sent still arrive."""
        while True:
            try:
                reply = await read_message(reader)
            except (asyncio.IncompleteReadError, OSError):
                self._replies.put_nowait(None)
                await self._idle.wait()
                raise
            if reply.startswith(_PUSH):
                await self.to_client(reply)
            else:
                self._replies.put_nowait(reply)

    async def next_reply(self) -> bytes:
        reply = await self._replies.get()
        if reply is None:
            raise Hangup
        return reply

    async def exchange(self) -> None:
        while True:
            self._idle.set()
            request = await self._requests.get()
            self._idle.clear()
            await self._proxy.action_for(request)(Exchange(request, self))

    async def to_server(self, data: bytes) -> None:
        await self._proxy.write(self._server, data, "requests")

    async def to_client(self, data: bytes) -> None:
        await self._proxy.write(self._client, data, "replies")

    def reset_client(self) -> None:
        wire: socket.socket = self._client.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._client.transport.abort()


async def _part(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        async with asyncio.timeout(0.5):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()


async def read_request(reader: asyncio.StreamReader) -> Request:
    """The next request: an array of bulk strings."""
    head = await reader.readuntil(b"\r\n")
    if not head.startswith(b"*"):
        raise ValueError(f"a request must be a RESP array, not {head[:80]!r}")
    raws = [await read_message(reader) for _ in range(int(head[1:]))]
    args = tuple(raw.split(b"\r\n", 1)[1][:-2] for raw in raws)
    return Request(head + b"".join(raws), args)


async def read_message(reader: asyncio.StreamReader) -> bytes:
    """The next whole message of RESP2 or RESP3, as it was sent."""
    head = await reader.readuntil(b"\r\n")
    kind, rest = head[:1], head[1:-2]
    if kind in _BULKS:
        return head if rest == b"-1" else head + await reader.readexactly(int(rest) + 2)
    members = int(rest) * _MEMBERS[kind] if kind in _MEMBERS else 0
    members += kind == _ATTRIBUTE
    return head + b"".join([await read_message(reader) for _ in range(members)])
