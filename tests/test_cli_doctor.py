"""The doctor: what is well, what is wrong, and what it mends."""
# ruff: noqa: ASYNC240 - small files, and nobody waits

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli_support import Done, cli
from tests.conftest import StartRedis
from tests.site import Site


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("DATA_FETCHER_STORE", raising=False)
    return tmp_path / "data"


def of(done: Done, subject: str) -> list[dict[str, Any]]:
    return [one for one in done.json["findings"] if one["subject"] == subject]


async def small_run(*store: str) -> None:
    async with Site(pages=5) as site:
        words = ("--allow-private", "-q", "--run-id", "r", *store)
        assert (await cli("crawl", site.start, *words)).code == 0


async def test_nothing_yet_is_well(home: Path) -> None:
    done = await cli("doctor", "--json")
    assert done.code == 0
    assert of(done, "python")[0]["health"] == "ok"
    assert "the first run will make it" in of(done, "store")[-1]["detail"]
    assert not home.exists()


async def test_a_run_is_looked_at() -> None:
    await small_run()
    done = await cli("doctor")
    assert done.code == 0
    assert "counts agree" in done.out
    assert "written, read and deleted" in done.out
    assert done.out.endswith("all is well\n")
    assert (await cli("doctor", "r")).code == 0


async def test_counts_are_mended(start_redis: StartRedis) -> None:
    server = start_redis(appendonly="yes")
    store = ("--store", server.url)
    await small_run(*store)
    with server.client() as client:
        client.hset("{fetch:r}:stats", "ready", 7)
    done = await cli("doctor", *store, "--json")
    assert done.code == 1
    assert "ready was 7 and is 0" in of(done, "run r")[0]["detail"]
    healthy = await cli("doctor", *store, "--json")
    assert healthy.code == 0
    assert [one["health"] for one in of(healthy, "redis server")] == ["ok"]
    assert of(healthy, "clock of redis")[0]["health"] == "ok"


async def test_a_redis_that_keeps_nothing_is_a_warning(redis_url: str) -> None:
    done = await cli("doctor", "--store", redis_url, "--json")
    assert done.code == 0
    assert "append-only" in of(done, "redis server")[1]["detail"]
    assert done.err == ""


async def test_a_redis_that_evicts_is_refused(start_redis: StartRedis) -> None:
    server = start_redis(maxmemory_policy="allkeys-lru")
    done = await cli("doctor", "--store", server.url, "--json")
    assert done.code == 4
    assert "noeviction" in of(done, "store")[-1]["detail"]


async def test_a_run_of_another_version(start_redis: StartRedis) -> None:
    """One that cannot be read spoils nothing for the others."""
    server = start_redis()
    store = ("--store", server.url)
    await small_run(*store)
    with server.client() as client:
        client.hset("{fetch:r}:state", "layout", 99)
    done = await cli("doctor", *store, "--json")
    assert done.code == 1
    assert of(done, "run r")[0]["health"] == "wrong"
    runs = await cli("runs", *store)
    assert runs.code == 0
    assert runs.out.splitlines()[1].split()[:2] == ["r", "unreadable"]
    assert (await cli("status", "r", *store)).code == 2


async def test_the_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1_000})())
    done = await cli("doctor", "--json")
    assert done.code == 1
    assert of(done, "disk of the store")[0]["health"] == "wrong"


async def test_the_clock_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_fetcher_core.cli.doctor.host.time.time", lambda: 0.0)
    done = await cli("doctor", "--json")
    assert done.code == 1
    assert of(done, "clock")[0]["health"] == "wrong"
