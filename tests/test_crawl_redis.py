"""A crawl whose Redis dies, comes back, comes back empty, or is hard to reach."""

from __future__ import annotations

import asyncio
import math
import random
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import StartRedis
from tests.crawls import (
    RUN,
    Crawl,
    NotedSite,
    check,
    check_output,
    looked_after,
    nursery,
    seed_of,
    told,
)
from tests.evidence import Evidence
from tests.programs import Nursery
from tests.redis_proxy import RedisProxy, delay
from tests.servers import RedisServer

__all__ = ["nursery"]

PAGES = 120
SLOWLY = 0.02
SLACK = 3


@pytest.fixture
def server(start_redis: StartRedis) -> RedisServer:
    """Keeps all that it has acknowledged."""
    return start_redis(appendonly="yes", appendfsync="always")


@pytest.fixture
async def site() -> AsyncIterator[NotedSite]:
    async with NotedSite(PAGES, delay=SLOWLY) as site:
        yield site


# --- the server dies -----------------------------------------------------------------------------


@pytest.mark.parametrize("outages", [2, pytest.param(10, marks=pytest.mark.slow)])
async def test_the_server_is_killed_and_comes_back(
    server: RedisServer, site: NotedSite, tmp_path: Path, nursery: Nursery, outages: int
) -> None:
    """The crawl waits, and goes on; nothing at all is asked for twice."""
    longest = 0.8 if outages == 2 else 3.0
    async with looked_after(Crawl(site, server.url, tmp_path, nursery.start)) as crawl:
        with told(3 if outages == 2 else seed_of(43)) as dice:
            await crawl.begin_all()
            for pages in _spread(outages, dice):
                await crawl.until_asked(pages)
                await _outage(server, dice.uniform(0, longest))
            await crawl.finished()
            await check(crawl)


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
async def test_server_crawler_and_helper_are_killed_together(
    server: RedisServer, site: NotedSite, tmp_path: Path, nursery: Nursery, kills: int
) -> None:
    async with looked_after(Crawl(site, server.url, tmp_path, nursery.start, processes=2)) as crawl:
        await crawl.forgive_deaths()
        with told(5 if kills == 3 else seed_of(47)) as dice:
            for pages in _spread(kills, dice):
                # No more are answered, so that it cannot end before it is killed.
                site.allow(pages)
                await crawl.begin_all()
                await crawl.until_asked(pages)
                await asyncio.gather(asyncio.to_thread(server.kill), crawl.kill())
                await asyncio.to_thread(server.start)
            site.allow(math.inf)
            await crawl.begin_all()
            await crawl.finished()
            await check(crawl)
        assert len(crawl.kills) == kills


async def test_stopped_while_the_server_is_away(
    server: RedisServer, site: NotedSite, tmp_path: Path, nursery: Nursery
) -> None:
    """There is nobody to give anything back to; who comes later finds it."""
    grace = ("--grace", "0.5")
    async with looked_after(Crawl(site, server.url, tmp_path, nursery.start, more=grace)) as crawl:
        program = crawl.begin()
        await crawl.until_asked(PAGES // 3)
        await asyncio.to_thread(server.kill)
        program.signal(signal.SIGTERM)
        assert await program.ended(SLACK * (0.5 + 3.0)) in {4, 75}
        assert "resume with: " in program.said()
        await asyncio.to_thread(server.start)
        crawl.begin()
        await crawl.finished()
        check_output(site, crawl.out)


def _spread(number: int, dice: random.Random) -> list[int]:
    return sorted(dice.sample(range(1, PAGES - 10), number))


async def _outage(server: RedisServer, seconds: float) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(server.start)


# --- the server forgets --------------------------------------------------------------------------


async def test_a_server_that_comes_back_empty_ends_the_crawl(
    server: RedisServer, site: NotedSite, tmp_path: Path, nursery: Nursery
) -> None:
    """An empty queue is not a finished run, neither to those who work on it nor to later ones."""
    async with looked_after(Crawl(site, server.url, tmp_path, nursery.start, processes=2)) as crawl:
        # Neither is done before both have asked, nor before the server has forgotten.
        site.allow(PAGES // 2)
        await crawl.begin_all()
        await crawl.until(lambda: {ask.process for ask in site.asks} >= {1, 2})
        await asyncio.to_thread(_restart_empty, server)
        site.allow(math.inf)
        assert [await program.ended() for program in crawl.programs.values()] == [4, 4]
        for program in crawl.programs.values():
            assert "finished" not in program.said()
            assert "Error: " in program.said()
        assert site.asked_pages < PAGES
        resumed = crawl.command("resume", RUN)
        assert await resumed.ended() == 2
        assert f"there is no run {RUN!r}" in resumed.said()
        again = crawl.begin()
        assert await again.ended() == 2
        assert "holds the pages of another run" in again.said()


def _restart_empty(server: RedisServer) -> None:
    server.kill()
    for path in server.directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix in {".aof", ".rdb"}:
            path.unlink()
    server.start()


# --- the network between -------------------------------------------------------------------------


@pytest.mark.parametrize("flaps", [4, pytest.param(40, marks=pytest.mark.slow)])
async def test_a_connection_that_comes_and_goes(
    redis_proxy: RedisProxy, tmp_path: Path, nursery: Nursery, shows: Evidence, flaps: int
) -> None:
    """Up for 300 ms, down for 200 ms; a page that is held back keeps the crawl from ending."""
    async with (
        NotedSite(PAGES, delay=SLOWLY) as site,
        looked_after(Crawl(site, redis_proxy.url, tmp_path, nursery.start)) as crawl,
    ):
        site.held.add(site.paths()[-1])
        await crawl.begin_all()
        for _ in range(flaps):
            await asyncio.sleep(0.3)
            await redis_proxy.down()
            await asyncio.sleep(0.2)
            await redis_proxy.up()
        site.release.set()
        await crawl.finished()
        lost = set(site.paths()) - set(site.page_counts())
        shows("F17", "outages of a crawl's network", flaps, at_least=4)
        shows("F17", "pages lost", len(lost), exactly=0)
        shows("F17", "pages asked for again", sum(site.page_counts().values()) - PAGES, exactly=0)
        await check(crawl)


async def test_a_long_way_to_the_server(
    redis_proxy: RedisProxy, site: NotedSite, tmp_path: Path, nursery: Nursery
) -> None:
    redis_proxy.fault(delay(request=0.004, reply=0.006), times=float("inf"))
    await _undisturbed(Crawl(site, redis_proxy.url, tmp_path, nursery.start, processes=2))


async def test_a_byte_at_a_time(redis_proxy: RedisProxy, tmp_path: Path, nursery: Nursery) -> None:
    redis_proxy.slice_size = 1
    async with NotedSite(12, delay=0.0) as site:
        await _undisturbed(Crawl(site, redis_proxy.url, tmp_path, nursery.start))


async def _undisturbed(crawl: Crawl) -> None:
    async with looked_after(crawl):
        await crawl.begin_all()
        await crawl.finished()
        await check(crawl)
