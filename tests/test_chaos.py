"""Processes and stores that are killed, cut off and filled up, and a step that a kill tore."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.chaos.append_only import cut_torn_step, torn_at
from tests.chaos.conducting import conduct
from tests.chaos.figures import Figures
from tests.chaos.tiers import SHORT
from tests.evidence import Evidence
from tests.servers import Binary, RedisServer, find_binaries

# --- a step that a killed server left torn -------------------------------------------------------


@pytest.mark.parametrize("binary", find_binaries(), ids=lambda binary: binary.label)
@pytest.mark.parametrize("repaired", [False, True], ids=["as it is", "cut off"])
def test_half_a_step_comes_back_at_the_second_start(
    binary: Binary, repaired: bool, tmp_path: Path
) -> None:
    """So do it the servers that were tried. One that no longer does makes the cutting needless."""
    server = RedisServer(tmp_path, binary, appendonly="yes", appendfsync="always").start()
    try:
        _step(server, "abc")
        server.kill()
        _tear(tmp_path, b"SET\r\n$1\r\nc")
        assert not repaired or cut_torn_step(tmp_path)
        server.start()
        assert _keys(server) == ""
        _step(server, "xy")
        server.kill()
        assert not cut_torn_step(tmp_path)
        server.start()
        assert _keys(server) == ("xy" if repaired else "abxy")
    finally:
        server.stop()


def test_where_a_step_is_torn() -> None:
    begin, end = b"*1\r\n$5\r\nMULTI\r\n", b"*1\r\n$4\r\nEXEC\r\n"
    assert torn_at(b"") is None
    assert torn_at(begin + b"x" + end) is None
    assert torn_at(begin + end + begin + b"x" + end[:-1]) == len(begin + end)


def _step(server: RedisServer, names: str) -> None:
    with server.client() as client:
        client.eval("".join(f"redis.call('SET', '{name}', 1) " for name in names), 0)


def _tear(directory: Path, before: bytes) -> None:
    (path,) = [*directory.glob("appendonlydir/*.incr.aof"), *directory.glob("appendonly.aof")]
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex(before)])


def _keys(server: RedisServer) -> str:
    with server.client() as client:
        return "".join(sorted(key.decode() for key in client.scan_iter()))


# --- the load that every change must hold --------------------------------------------------------

_SEED = 20_240_817


@pytest.mark.slow
async def test_the_short_tier_on_redis(tmp_path: Path, shows: Evidence) -> None:
    """5,000 requests, 4 processes of 25; 10 of them killed, Redis 3 times, 1,000 cancels."""
    outcome = await conduct(SHORT, "redis", _SEED, tmp_path)
    assert outcome.account.problems() == []
    Figures(outcome, shows).all()


@pytest.mark.slow
async def test_the_short_tier_on_sqlite(tmp_path: Path, shows: Evidence) -> None:
    """A part of it, so that both fit into a minute and a half."""
    smaller = dataclasses.replace(SHORT.lasting(0.25), name="short, a part")
    outcome = await conduct(smaller, "sqlite", _SEED, tmp_path)
    assert outcome.account.problems() == []
    Figures(outcome, shows).all()
