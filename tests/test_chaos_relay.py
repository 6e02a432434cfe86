"""The lean proxy of the chaos tests: it may delay and lose replies, and never mixes them up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from tests.chaos.relay import Relay, Weather
from tests.servers import free_port

GREETINGS = b"-ERR unknown\r\n-ERR unknown\r\n"
# One array in two parts, cut between its elements.
FIRST_PART, SECOND_PART = b"*2\r\n$1\r\nx\r\n*1\r\n", b"$5\r\n0-832\r\n"


class Forecast(Weather):
    """As late as foretold, one reply after another."""

    def __init__(self, late: Iterable[float]) -> None:
        super().__init__(seed=0)
        self._late = iter(late)

    def lateness(self) -> float:
        return next(self._late, 0.0)


class Server(asyncio.Protocol):
    """As an older Redis writes: two commands that came together are answered at once, and a long
    reply comes in several pieces."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data == b"hello":
            self._transport.write(GREETINGS)
            return
        self._transport.write(FIRST_PART)
        asyncio.get_running_loop().call_later(0.02, self._transport.write, SECOND_PART)


async def _hear_through(weather: Weather) -> bytes:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    relay = Relay(free_port(), server.sockets[0].getsockname()[1], weather)
    await relay.up()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay._port)
        writer.write(b"hello")
        heard = await reader.readexactly(len(GREETINGS))
        writer.write(b"ask")
        heard += await reader.readexactly(len(FIRST_PART + SECOND_PART))
        writer.close()
        await writer.wait_closed()
        return heard
    finally:
        await relay.down()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("late", [(), (0.0, 0.2, 0.0), (0.2, 0.1, 0.0), (0.0, 0.1, 0.1)])
async def test_what_was_said_first_arrives_first(late: tuple[float, ...]) -> None:
    async with asyncio.timeout(10):
        heard = await _hear_through(Forecast(late))
    assert heard == GREETINGS + FIRST_PART + SECOND_PART
