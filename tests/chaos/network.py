"""The network between the processes and Redis, in a process of its own, and how to spoil it."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.chaos.relay import Relay, Weather


class _Control:
    """Does to the relay what it is told, one line at a time."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                await self._obey(json.loads(line))
                weather = self._relay.weather
                told = {"lost": weather.lost, "late": weather.late}
                writer.write(json.dumps(told).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _obey(self, order: Mapping[str, Any]) -> None:
        match order["do"]:
            case "up":
                await self._relay.up()
            case "down":
                await self._relay.down()
            case "weather":
                vars(self._relay.weather).update(order["weather"])


async def main(orders: Mapping[str, Any]) -> int:
    # A connection that is accepted while the listener closes is left to the garbage collector.
    warnings.simplefilter("ignore", ResourceWarning)
    relay = Relay(orders["port"], orders["server"], Weather(orders["seed"]))
    await relay.up()
    async with await asyncio.start_unix_server(_Control(relay).serve, orders["control"]):
        await asyncio.Event().wait()
    return 0


class Network:
    """The conductor's side of it."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.lost = 0
        self.late = 0

    async def open(self, within: float = 10.0) -> None:
        async with asyncio.timeout(within):
            while self._streams is None:
                with suppress(OSError):
                    self._streams = await asyncio.open_unix_connection(self._control)
                await asyncio.sleep(0.01)

    async def down(self) -> None:
        await self._tell(do="down")

    async def up(self) -> None:
        await self._tell(do="up")

    async def weather(self, **weather: float) -> None:
        """``loss`` of replies as a share, ``delay`` and ``jitter`` in seconds; the rest stays."""
        await self._tell(do="weather", weather=weather)

    async def close(self) -> None:
        if self._streams is not None:
            writer = self._streams[1]
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _tell(self, **order: Any) -> None:
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(json.dumps(order).encode() + b"\n")
        answer = json.loads(await reader.readline())
        self.lost, self.late = answer["lost"], answer["late"]
