"""A crawl that is asked to stop: it ends soon, leaves nothing leased, and loses nothing."""

from __future__ import annotations

import math
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.crawls import (
    Crawl,
    NotedSite,
    check,
    come,
    instants,
    looked_after,
    nursery,
    seed_of,
    told,
)
from tests.evidence import Evidence
from tests.programs import Nursery, Program

__all__ = ["nursery"]

STOPPED = 75
SLACK = 3
PAGES = 100
TERM, INT = signal.SIGTERM, signal.SIGINT

pytestmark = pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)


async def _is_stopped(program: Program, within: float, shows: Evidence) -> None:
    """It ended by itself, as it should, not much later than this."""
    start = time.monotonic()
    shows("F54", "exit code", await program.ended(within * SLACK), exactly=STOPPED)
    over = max(0.0, time.monotonic() - start - within)
    shows("F54", "longer than its grace", over, at_most=within * (SLACK - 1), unit="s")
    assert "resume with: data-fetcher resume crawl" in program.said()


@pytest.mark.parametrize("how", [(TERM, ()), (INT, ()), (TERM, ("--uvloop",))])
async def test_stopped_under_load_everything_in_flight_is_finished(
    store_url: str,
    tmp_path: Path,
    nursery: Nursery,
    shows: Evidence,
    how: tuple[signal.Signals, tuple[str, ...]],
) -> None:
    """So nothing at all is asked for twice, however often it is stopped."""
    number, more = how
    async with (
        NotedSite(PAGES, delay=0.03) as site,
        looked_after(Crawl(site, store_url, tmp_path, nursery.start, more=more)) as crawl,
    ):
        for pages in (1, 30, 70):
            program = crawl.begin()
            await crawl.until_asked(pages)
            program.signal(number)
            await _is_stopped(program, 3.0, shows)
            stats = await crawl.stats()
            shows("F54", "leased after the stop", stats.leased, exactly=0)
            shows(
                "F54", "asked for and not finished", site.asked_pages - stats.completed, exactly=0
            )
            assert stats.retried == 0
        crawl.begin()
        await crawl.finished()
        await check(crawl)


async def test_what_takes_longer_than_the_grace_is_given_back(
    store_url: str, tmp_path: Path, nursery: Nursery, shows: Evidence
) -> None:
    """Another process that works on the run has it at once; nothing is spent."""
    async with (
        NotedSite(PAGES) as site,
        looked_after(
            Crawl(site, store_url, tmp_path, nursery.start, more=("--grace", "0.5"))
        ) as crawl,
    ):
        slow = {"/p/20", "/p/21", "/p/22"}
        site.held |= slow
        first = crawl.begin()
        await crawl.until_settled(PAGES - len(slow))
        second = crawl.join()
        # It has nothing to do: all that is left is held by the first.
        await crawl.until(lambda: "goes on" in second.said())
        first.signal(TERM)
        await _is_stopped(first, 0.5 + 2.0, shows)
        stopped = time.monotonic()
        await crawl.until(lambda: sum(site.counts[path] for path in slow) == 6)
        waited = time.monotonic() - stopped
        shows("F54", "until another has what was given back", waited, at_most=1.0 * SLACK, unit="s")
        stats = await crawl.stats()
        assert (stats.leased, stats.retried, stats.dead) == (3, 0, 0)
        site.release.set()
        assert await second.ended() == 0
        assert {path for path, times in site.page_counts().items() if times > 1} == slow
        assert max(Counter(site.asks).values()) == 1


async def test_a_second_signal_does_not_wait_for_the_grace(
    store_url: str, tmp_path: Path, nursery: Nursery, shows: Evidence
) -> None:
    async with (
        NotedSite(PAGES) as site,
        looked_after(
            Crawl(site, store_url, tmp_path, nursery.start, more=("--grace", "600"))
        ) as crawl,
    ):
        site.held |= {"/p/20", "/p/21"}
        program = crawl.begin()
        await crawl.until_settled(PAGES - 2)
        program.signal(TERM)
        await crawl.until(lambda: "stopping: " in program.said())
        assert program.is_running
        program.signal(TERM)
        await _is_stopped(program, 2.0, shows)
        shows("F54", "leased after the stop", (await crawl.stats()).leased, exactly=0)
        site.release.set()
        crawl.begin()
        await crawl.finished()
        again = {path for path, times in site.page_counts().items() if times > 1}
        assert again == site.held


@pytest.mark.parametrize("rounds", [2, pytest.param(15, marks=pytest.mark.slow)])
async def test_a_signal_at_any_instant(
    store_url: str, tmp_path: Path, nursery: Nursery, shows: Evidence, rounds: int
) -> None:
    """Also while it starts, and while it ends. Before it listens, a signal is its death."""
    with told(13 if rounds == 2 else seed_of(53)) as dice:
        for round_number in range(rounds):
            folder = tmp_path / f"{round_number}"
            folder.mkdir()
            async with (
                NotedSite(40) as site,
                looked_after(Crawl(site, store_url, folder, nursery.start)) as crawl,
            ):
                crawl.run_id = f"run{round_number}"
                await _stop_often(crawl, dice, shows)


async def _stop_often(crawl: Crawl, dice: random.Random, shows: Evidence) -> None:
    for instant in instants(dice, 5, 40, startup=0.25):
        program = crawl.begin()
        await come(crawl, instant)
        for _ in range(dice.choice((1, 2))):
            program.signal(TERM)
        crawl.site.allow(math.inf)
        assert await program.ended(10.0 * SLACK) in {0, STOPPED, -TERM}, program.said()
        shows("F54", "leased after the stop", (await crawl.stats()).leased, exactly=0)
    crawl.begin()
    await crawl.finished()
    lost = set(crawl.site.paths()) - set(crawl.site.page_counts())
    shows("F54", "pages lost", len(lost), exactly=0)
