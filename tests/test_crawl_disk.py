"""A crawl on a disk that is full for a while: it says so, waits, goes on, and loses nothing."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from data_fetcher_core.clock import SystemClock
from data_fetcher_core.core import FetchRunContext, Page, RequestMeta
from data_fetcher_core.events import Event, GoesOn, Paused
from data_fetcher_core.fetcher import Fetcher
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from tests.crawls import Crawl, NotedSite, check, check_output, looked_after
from tests.demands import demanded_disk
from tests.evidence import Evidence
from tests.fetching import ListLocator, Loader, page, plan_of, url
from tests.harness import background
from tests.small_disks import SmallDisk
from tests.sqlite_support import Tap, sqlite_error
from tests.waiting import until

PAGES = 100
# So long that all workers have found it full.
_LONG = 1.0
_PAUSED = "PAUSED, nothing is lost: "


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with demanded_disk(tmp_path / "disk") as found:
        yield found


async def test_a_store_without_room(disk: SmallDisk, tmp_path: Path, shows: Evidence) -> None:
    """Nothing is asked for twice, and nobody has to help."""
    store = f"sqlite:///{disk.place / 'runs.db'}"
    async with (
        NotedSite(PAGES, delay=0.02, links_per_page=3) as site,
        looked_after(Crawl(site, store, tmp_path, disk.start)) as crawl,
    ):
        await _be_full_for_a_while(disk, crawl)
        shutil.copytree(disk.seen(disk.place), tmp_path / "copied")
        crawl.store = f"sqlite:///{tmp_path / 'copied' / 'runs.db'}"
        await check(crawl)
        lost = set(site.paths()) - set(site.page_counts())
        shows("F48", "a full disk under a crawl: pages lost", len(lost), exactly=0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("full", ["store", "pages"])
async def test_stopped_while_there_is_no_room(
    disk: SmallDisk, tmp_path: Path, full: str, number: signal.Signals
) -> None:
    """Nothing can be given back or written down then, and nothing has to be."""
    store = disk.place if full == "store" else tmp_path
    async with (
        NotedSite(PAGES, delay=0.02, links_per_page=3) as site,
        looked_after(Crawl(site, f"sqlite:///{store / 'runs.db'}", tmp_path, disk.start)) as crawl,
    ):
        crawl.more = ("--grace", "0.2")
        crawl.out = (disk.place if full == "pages" else tmp_path) / "out"
        program = crawl.begin()
        await crawl.until_asked(20)
        async with background(_keep_full(disk)):
            await crawl.until(lambda: _PAUSED in program.said())
            program.signal(number)
            assert await program.ended(10.0) in {75, -signal.SIGKILL}, program.said()
        disk.make_room()
        crawl.begin()
        await crawl.finished()
        check_output(site, disk.seen(crawl.out))
        assert set(site.page_counts()) == set(site.paths())


async def test_no_room_for_pages(disk: SmallDisk, tmp_path: Path, shows: Evidence) -> None:
    """What could not be stored is asked for again when there is room."""
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with (
        NotedSite(PAGES, delay=0.02, links_per_page=3) as site,
        looked_after(Crawl(site, store, tmp_path, disk.start)) as crawl,
    ):
        crawl.out = disk.place / "out"
        await _be_full_for_a_while(disk, crawl)
        check_output(site, disk.seen(crawl.out))
        stats = await crawl.stats()
        assert (stats.completed, stats.retried) == (PAGES, 0)
        shows("F48", "no room for pages: given up", stats.dead, exactly=0)


async def _be_full_for_a_while(disk: SmallDisk, crawl: Crawl) -> None:
    program = crawl.begin()
    await crawl.until_asked(20)
    async with background(_keep_full(disk)):
        await crawl.until(lambda: _PAUSED in program.said())
        await asyncio.sleep(_LONG)
    assert program.is_running
    assert crawl.site.asked_pages < PAGES
    disk.make_room()
    await crawl.finished()
    assert "there is room again, the run goes on" in program.said()


async def _keep_full(disk: SmallDisk) -> None:
    """Somebody else takes whatever room is made, the store's reserve included."""
    while True:
        disk.fill()
        await asyncio.sleep(0.005)


# --- the same without a disk of one's own --------------------------------------------------------


class Pretence:
    """A database that has no room while it is told so."""

    def __init__(self) -> None:
        self.is_full = False
        self.tap = Tap()
        # It comes before every commit that has something to write.
        self.tap.before["UPDATE commits"] = self._check

    def _check(self) -> None:
        if self.is_full:
            raise sqlite_error(sqlite3.SQLITE_FULL, "SQLITE_FULL")


class HastyClock(SystemClock):
    """Pauses are short here."""

    async def sleep(self, duration: float) -> None:
        await super().sleep(duration / 20)


class Tree(ListLocator):
    """Every page has two more below it."""

    async def handle_url_processed(
        self, request: RequestMeta, result: object, ctx: FetchRunContext
    ) -> list[RequestMeta]:
        number = int(request.url.name)
        return [RequestMeta(url(n)) for n in (2 * number, 2 * number + 1) if n < 512]


async def test_a_store_that_says_it_has_no_room(tmp_path: Path) -> None:
    disk, told = Pretence(), list[Event]()

    async def answer(request: RequestMeta) -> Page:
        if len(loader.asked) == 60:
            disk.is_full = True
        await asyncio.sleep(0.001)
        return page(request)

    loader = Loader(answer)
    async with SQLiteStore(tmp_path / "runs.db", connect=disk.tap.connect) as store:
        plan = plan_of(store, [Tree([url(1)])], loader)
        running = Fetcher(clock=HastyClock(), subscriber=told.append).run(plan)
        async with background(running) as run:
            await until(lambda: any(isinstance(event, Paused) for event in told))
            disk.is_full = False
            result = await run
    assert (result.processed_count, result.errors, result.is_finished) == (511, [], True)
    assert loader.asked == Counter({url(n): 1 for n in range(1, 512)})
    assert [type(event) for event in told if isinstance(event, Paused | GoesOn)] == [Paused, GoesOn]
    assert "full" in next(event.reason for event in told if isinstance(event, Paused))
