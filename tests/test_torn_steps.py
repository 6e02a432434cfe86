"""A server that was killed while it wrote: half a step in its file, and what becomes of it."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.core import Entry
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.testing import ManualClock
from tests.chaos.append_only import cut_torn_step, torn_at
from tests.conftest import StartRedis
from tests.fault_support import open_run, results
from tests.harness import crash, items, letters, silence
from tests.servers import Binary, RedisServer, find_binaries


@pytest.mark.parametrize("binary", find_binaries(), ids=lambda binary: binary.label)
@pytest.mark.parametrize("repair", ["none", "cut off", "rewrite"])
def test_half_a_step_comes_back_at_the_second_start(
    binary: Binary, repair: str, tmp_path: Path
) -> None:
    """So does every Redis that was tried. What no longer does makes the cutting needless."""
    server = RedisServer(tmp_path, binary, appendonly="yes", appendfsync="always").start()
    try:
        _step(server, "abc")
        server.kill()
        _tear(server, b"SET\r\n$1\r\nc")
        assert repair != "cut off" or cut_torn_step(tmp_path)
        server.start()
        assert _keys(server) == ""
        if repair == "rewrite":
            _rewrite(server)
        _step(server, "xy")
        server.restart()
        comes_back = repair == "none" and not _is_mended(binary)
        assert _keys(server) == ("abxy" if comes_back else "xy")
    finally:
        server.stop()


def _is_mended(binary: Binary) -> bool:
    return binary.path.name == "valkey-server" and binary.version >= (9, 1)


def test_where_a_step_is_torn() -> None:
    begin, end = b"*1\r\n$5\r\nMULTI\r\n", b"*1\r\n$4\r\nEXEC\r\n"
    assert torn_at(b"") is None
    assert torn_at(begin + b"x" + end) is None
    assert torn_at(begin + end + begin + b"x" + end[:-1]) == len(begin + end)


def _step(server: RedisServer, names: str) -> None:
    with server.client() as client:
        client.eval("".join(f"redis.call('SET', '{name}', 1) " for name in names), 0)


def _tear(server: RedisServer, before: bytes) -> None:
    path = _file_of(server)
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex(before)])


def _rewrite(server: RedisServer) -> None:
    with server.client() as client:
        client.bgrewriteaof()
        until = time.monotonic() + 10.0
        while client.info("persistence")["aof_rewrite_in_progress"]:
            assert time.monotonic() < until
            time.sleep(0.01)


def _keys(server: RedisServer) -> str:
    with server.client() as client:
        return "".join(sorted(key.decode() for key in client.scan_iter()))


# --- what our own steps leave --------------------------------------------------------------------

_COMMAND = re.compile(rb"\*\d+\r\n\$")
Verb = Callable[[KVStoreQueue, Any], Awaitable[Any]]
VERBS: dict[str, Verb] = {
    "enqueue": lambda queue, _: queue.enqueue([Entry("new", id="new", key="new")]),
    "lease": lambda queue, _: queue.lease(2),
    "complete": lambda _, lease: lease.complete([Entry("child", id="child")], result="a"),
    "release": lambda _, lease: lease.release(delay=5.0),
    "give back": lambda _, lease: lease.give_back(),
    "bury": lambda _, lease: lease.bury(),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_nothing_is_lost_by_half_a_step(verb: str, start_redis: StartRedis) -> None:
    """Torn after any command, and cut off: as if it had never been asked for."""
    server = start_redis(appendonly="yes", appendfsync="always")
    path, before, after = await _perform(server, verb)
    cuts = [found.start() for found in _COMMAND.finditer(after, len(before))]
    assert len(cuts) > 3
    for cut in cuts[1::3]:
        server.kill()
        path.write_bytes(after[: cut + 3])
        assert cut_torn_step(server.directory)
        server.start()
        assert await _found_later(server) == ["a", "b", "c", "d", "later"]


async def _perform(server: RedisServer, verb: str) -> tuple[Path, bytes, bytes]:
    """The file, and what was in it before and after the verb."""
    async with open_run(server.url) as queue:
        await queue.enqueue([Entry(name, id=name) for name in "abcd"])
        (lease,) = await queue.lease()
        path = _file_of(server)
        before = path.read_bytes()
        await VERBS[verb](queue, lease)
        after = path.read_bytes()
        await crash(queue)
    return path, before, after[: after.rindex(b"*1\r\n$4\r\nEXEC\r\n") + 14]


async def _found_later(server: RedisServer) -> list[str]:
    """Everything that is anywhere after more work and another death of the server."""
    async with open_run(server.url) as queue:
        await queue.enqueue([Entry("later", id="later")])
        for lease in await queue.lease(1):
            await lease.complete(result=lease.item)
    server.restart()
    return await _everything(server)


async def _everything(server: RedisServer) -> list[str]:
    clock = ManualClock(time.time() + 60.0)
    async with open_run(server.url, clock=clock) as queue:
        await silence(queue, clock)
        left = items(await queue.lease(100))
        buried = [letter.id for letter in await letters(queue)]
        return sorted([*left, *await results(queue), *buried])


def _file_of(server: RedisServer) -> Path:
    folder = server.directory
    (path,) = [*folder.glob("appendonlydir/*.incr.aof"), *folder.glob("appendonly.aof")]
    return path
