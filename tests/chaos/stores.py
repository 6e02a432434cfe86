"""The store of a run, seen from those who spoil it: where it is, how to kill it, how to fill it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from tests.chaos.append_only import cut_torn_step
from tests.chaos.network import Network
from tests.chaos.zygote import Zygote
from tests.servers import RedisServer, free_port
from tests.small_disks import SmallDisk, small_disk


class Place(Protocol):
    """What the conductor knows of a store. ``wrap`` is how to start who can see it."""

    kind: str
    url: str
    wrap: Sequence[str]
    has_server: bool
    can_fill: bool
    network: Network | None
    # How often the file of a killed server ended in the middle of a step.
    torn: int

    async def open(self, zygote: Zygote, loss: float, seed: int) -> None: ...

    async def kill_server(self) -> None: ...

    async def start_server(self) -> float:
        """The instant of its first PONG."""

    async def fill(self) -> None:
        """Leave no room; asked for again and again while there shall be none."""

    async def make_room(self) -> None: ...


class RedisPlace:
    kind = "redis"
    wrap: Sequence[str] = ()
    has_server = True
    can_fill = True

    def __init__(self, folder: Path, *, proxied: bool = True) -> None:
        directory = folder / "redis"
        directory.mkdir()
        self._server = RedisServer(directory, appendonly="yes", appendfsync="always")
        self._folder = folder
        self._port = free_port() if proxied else 0
        self.url = ""
        self.torn = 0
        self.network: Network | None = None

    async def open(self, zygote: Zygote, loss: float, seed: int) -> None:
        await asyncio.to_thread(self._server.start)
        self.url = self._server.url
        if self._port:
            await self._open_network(zygote, loss, seed)

    async def _open_network(self, zygote: Zygote, loss: float, seed: int) -> None:
        control = self._folder / "network"
        orders = {"server": self._server.port, "port": self._port, "control": str(control)}
        await zygote.start("network", {**orders, "seed": seed})
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.network = Network(control)
        await self.network.open()
        await self.network.weather(loss=loss)

    async def kill_server(self) -> None:
        await asyncio.to_thread(self._server.kill)

    async def start_server(self) -> float:
        """As a careful operator does: a step that was torn in its file is cut off first."""
        self.torn += cut_torn_step(self._server.directory)
        await asyncio.to_thread(self._server.start)
        return time.monotonic()

    async def fill(self) -> None:
        await self._limit("1")

    async def make_room(self) -> None:
        await self._limit("0")

    async def _limit(self, memory: str) -> None:
        def limit() -> None:
            with self._server.client() as client:
                client.config_set("maxmemory", memory)

        await asyncio.to_thread(limit)

    async def close(self) -> None:
        if self.network is not None:
            await self.network.close()
        await asyncio.to_thread(self._server.stop)


# As large as a store makes it by itself.
_RESERVE = 512 * 1024


class SQLitePlace:
    """A file; on a small disk of its own where one may be mounted."""

    kind = "sqlite"
    has_server = False
    network: Network | None = None
    torn = 0

    def __init__(self, folder: Path, disk: SmallDisk | None) -> None:
        self.can_fill = disk is not None
        self.url = f"sqlite:///{folder / 'run.db'}"
        self.wrap: Sequence[str] = () if disk is None else disk.wrap
        self._disk = disk
        self._reserve = folder / "run.db-reserve"

    async def open(self, zygote: Zygote, loss: float, seed: int) -> None:
        """A file needs nobody who serves it."""

    async def kill_server(self) -> None:
        """There is none."""

    async def start_server(self) -> float:
        return time.monotonic()

    async def fill(self) -> None:
        """What the store frees by itself is taken again; but what it gives up is for settling."""
        assert self._disk is not None
        await asyncio.to_thread(self._disk.fill, self._has_whole_reserve)

    def _has_whole_reserve(self) -> bool:
        """Not while it is given up, nor while it is put back: that room is the store's own."""
        assert self._disk is not None
        try:
            return self._disk.seen(self._reserve).stat().st_size >= _RESERVE
        except FileNotFoundError:
            return False

    async def make_room(self) -> None:
        assert self._disk is not None
        with suppress(FileNotFoundError):
            await asyncio.to_thread(self._disk.make_room)


@asynccontextmanager
async def open_place(
    kind: str, folder: Path, *, size: str = "64m", proxied: bool = True
) -> AsyncIterator[Place]:
    if kind == "redis":
        place = RedisPlace(folder, proxied=proxied)
        try:
            yield place
        finally:
            await place.close()
        return
    disk_folder = folder / "disk"
    disk_folder.mkdir()
    with small_disk(disk_folder, size) as disk:
        yield SQLitePlace(disk_folder, disk)
