"""The network between the processes and Redis, in a process of its own, and how to spoil it."""

from __future__ import annotations

import asyncio
import json
import math
import random
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.redis_proxy import Exchange, Hangup, RedisProxy


class Weather:
    """What happens to every exchange. Loss is of replies: the command has run."""

    def __init__(self, seed: int) -> None:
        self.loss = 0.0
        self.delay = 0.0
        self.jitter = 0.0
        self.lost = 0
        self._dice = random.Random(seed)

    async def act(self, exchange: Exchange) -> None:
        if self.delay:
            await asyncio.sleep(self.delay + self._dice.uniform(0, self.jitter))
        await exchange.forward()
        reply = await exchange.reply()
        if self.loss and self._dice.random() < self.loss:
            self.lost += 1
            raise Hangup
        await exchange.send(reply)


class _Control:
    """Does to the proxy what it is told, one line at a time."""

    def __init__(self, proxy: RedisProxy, weather: Weather) -> None:
        self._proxy = proxy
        self._weather = weather

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                await self._obey(json.loads(line))
                writer.write(json.dumps({"lost": self._weather.lost}).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _obey(self, order: Mapping[str, Any]) -> None:
        match order["do"]:
            case "up":
                await self._proxy.up()
            case "down":
                await self._proxy.down()
            case "weather":
                vars(self._weather).update(order["weather"])
            case "slices":
                self._proxy.slice_size, self._proxy.slice_pause = order["size"], order["pause"]


async def main(orders: Mapping[str, Any]) -> int:
    # A connection that is accepted while the listener closes is left to the garbage collector.
    warnings.simplefilter("ignore", ResourceWarning)
    proxy, weather = RedisProxy(orders["server"]), Weather(orders["seed"])
    proxy.port = orders["port"]
    proxy.fault(weather.act, times=math.inf)
    control = _Control(proxy, weather)
    async with proxy, await asyncio.start_unix_server(control.serve, orders["control"]):
        await asyncio.Event().wait()
    return 0


class Network:
    """The conductor's side of it."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.lost = 0

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
        """``loss`` of replies as a share, ``delay`` and ``jitter`` in seconds."""
        await self._tell(do="weather", weather=weather)

    async def slices(self, size: int | None, pause: float = 0.0) -> None:
        await self._tell(do="slices", size=size, pause=pause)

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
        self.lost = answer["lost"]
