"""A lean proxy for much traffic: replies may be lost, late, or not come for a while.

It counts on what our client does: one command at a time on a connection. So requests pass as they
come, and a reply is kept until it is whole, to be sent or lost. For faults that hit one message
of many there is :mod:`tests.redis_proxy`.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from contextlib import suppress

from hiredis import Reader

_UNFINISHED = object()
_HOST = "127.0.0.1"


class Weather:
    """What happens to every reply. Who loses one has its command run, and its connection cut."""

    def __init__(self, seed: int) -> None:
        self.loss = 0.0
        self.delay = 0.0
        self.jitter = 0.0
        self.lost = 0
        self.late = 0
        self._dice = random.Random(seed)

    def loses(self) -> bool:
        lost = self.loss > 0 and self._dice.random() < self.loss
        self.lost += lost
        return lost

    def lateness(self) -> float:
        """The delay, more or less by up to the jitter."""
        late = max(0.0, self.delay + self._dice.uniform(-self.jitter, self.jitter))
        self.late += late > 0
        return late


class Relay:
    def __init__(self, port: int, server_port: int, weather: Weather) -> None:
        self.weather = weather
        self.server_port = server_port
        self.pairs: set[_Client] = set()
        self.connecting: set[asyncio.Task[None]] = set()
        self._port = port
        self._listener: asyncio.Server | None = None

    async def up(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: _Client(self), _HOST, self._port, backlog=512
        )

    async def down(self) -> None:
        """Refuse new connections and reset those that are open."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for pair in list(self.pairs):
            pair.abort()


class _Client(asyncio.Protocol):
    """One connection of a client, and the one to the server that goes with it."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._early: list[bytes] = []
        self._replies: deque[bytes] = deque()
        self._last_at = 0.0
        self._to_client: asyncio.Transport | None = None
        self._to_server: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._to_client = transport
        self._relay.pairs.add(self)
        connecting = asyncio.ensure_future(self._connect())
        self._relay.connecting.add(connecting)
        connecting.add_done_callback(self._relay.connecting.discard)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        port = self._relay.server_port
        with suppress(OSError):
            transport, _ = await loop.create_connection(lambda: _Server(self), _HOST, port)
            if self not in self._relay.pairs:
                transport.abort()
                return
            self._to_server = transport
            transport.writelines(self._early)
            return
        self.abort()

    def data_received(self, data: bytes) -> None:
        if self._to_server is None:
            self._early.append(data)
        else:
            self._to_server.write(data)

    def reply(self, data: bytes) -> None:
        if self._relay.weather.loses():
            self.abort()
            return
        loop = asyncio.get_running_loop()
        late = self._relay.weather.lateness()
        # However late it is, what came after it waits for it.
        self._last_at = max(self._last_at, loop.time() + late)
        self._replies.append(data)
        if late or len(self._replies) > 1:
            loop.call_at(self._last_at, self._send_next)
        else:
            self._send_next()

    def _send_next(self) -> None:
        data = self._replies.popleft()
        if self._to_client is not None and not self._to_client.is_closing():
            self._to_client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.abort()

    def abort(self) -> None:
        self._relay.pairs.discard(self)
        for transport in (self._to_client, self._to_server):
            if transport is not None:
                transport.abort()


class _Server(asyncio.Protocol):
    def __init__(self, client: _Client) -> None:
        self._client = client
        self._reader = Reader(notEnoughData=_UNFINISHED)
        self._unsent = bytearray()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._unsent += data
        if self._finishes_any():
            replies, self._unsent = bytes(self._unsent), bytearray()
            self._client.reply(replies)

    def _finishes_any(self) -> bool:
        """Several replies may come at once: to the commands that greet a server."""
        finished = 0
        while self._reader.gets() is not _UNFINISHED:
            finished += 1
        return finished > 0

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.abort()
