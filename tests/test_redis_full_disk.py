"""A Redis whose disk is full: it refuses to write, or ends; nothing that it took is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demands import demanded_disk
from tests.evidence import Evidence
from tests.fault_support import bounded, open_run
from tests.harness import background, impatient
from tests.servers import RedisServer, wait_for
from tests.small_disks import SmallDisk
from tests.steady_load import SteadyLoad
from tests.waiting import failure_of

__all__ = ["bounded"]

SLACK = 3
OP_TIMEOUT = 10.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with demanded_disk(tmp_path / "small", "4m") as found:
        yield found


def _server_on(disk: SmallDisk, directory: Path, appendfsync: str) -> RedisServer:
    directory.mkdir()
    options = {"appendonly": "yes", "appendfsync": appendfsync, "dir": f'"{disk.place}"'}
    # A log of this size is not rewritten: that would need as much room again.
    return RedisServer(directory, None, disk.wrap, auto_aof_rewrite_percentage="0", **options)


def _refusals(server: RedisServer) -> int:
    with server.client() as client:
        told = client.info("errorstats").get("errorstat_MISCONF", {"count": 0})
    return int(told["count"])


async def test_a_server_that_cannot_write_is_waited_for(
    disk: SmallDisk, tmp_path: Path, shows: Evidence
) -> None:
    with _server_on(disk, tmp_path / "server", "everysec") as server:
        async with open_run(server.url, op_timeout=OP_TIMEOUT) as queue:
            load = SteadyLoad(queue)
            async with (
                open_run(server.url, op_timeout=OP_TIMEOUT) as hasty,
                background(load.run()) as running,
            ):
                await impatient(hasty, 1.5)
                await load.until_sent(50)
                await asyncio.to_thread(disk.fill)
                await asyncio.to_thread(wait_for, lambda: _refusals(server) >= 3, "no MISCONF")
                told = await failure_of(hasty.enqueue(["in vain"]))
                disk.make_room()
                room = time.monotonic()
                await load.until_completed(50)
                resumed = time.monotonic() - room
                load.stop()
                await running
            load.perhaps_sent.add("in vain")
            await load.finish()
            account = await load.account()
        kind = type(told).__name__ if "disk" in str(told) else f"{told!r}"
        shows("F38", "disk full: told to who does not wait", kind, exactly="StoreUnavailable")
        shows("F38", "disk full: errors to who waits", load.refusals.total(), exactly=0)
        shows("F38", "disk full: forgotten", len(account.forgotten), exactly=0)
        shows("F38", "disk full: delivered twice", len(account.delivered_twice), exactly=0)
        shows("F38", "room again: goes on after", resumed, at_most=2.0 * SLACK, unit="s")


async def test_a_server_that_ends_because_it_cannot_write_loses_nothing(
    disk: SmallDisk, tmp_path: Path, shows: Evidence
) -> None:
    with _server_on(disk, tmp_path / "server", "always") as server:
        async with open_run(server.url, op_timeout=OP_TIMEOUT) as queue:
            load = SteadyLoad(queue)
            async with background(load.run()) as running:
                await load.until_sent(50)
                await asyncio.to_thread(disk.fill)
                await asyncio.to_thread(wait_for, lambda: not server.is_alive, "it lives on")
                disk.make_room()
                await asyncio.to_thread(server.restart)
                await load.until_completed(50)
                load.stop()
                await running
            await load.finish()
            account = await load.account()
    shows("F38", "always, ended: forgotten", len(account.forgotten), exactly=0)
    shows("F38", "always, ended: delivered twice", len(account.delivered_twice), exactly=0)
    shows("F38", "always, ended: errors to callers", load.refusals.total(), exactly=0)
