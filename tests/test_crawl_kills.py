"""A crawl that is killed without warning, again and again, and typed again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crawls import (
    _AHEAD,
    Crawl,
    Instant,
    NotedSite,
    check,
    finished_again,
    instants,
    kill_again_and_again,
    kill_one_after_another,
    looked_after,
    most_again,
    nursery,
    seed_of,
    told,
)
from tests.evidence import Evidence
from tests.programs import Nursery, Start, start_command

__all__ = ["nursery"]

KINDS = ["sqlite", "redis"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'runs.db'}"
    url: str = request.getfixturevalue("redis_url")
    return url


async def test_a_crawl_that_is_left_alone(store: str, tmp_path: Path) -> None:
    async with (
        NotedSite(100) as site,
        looked_after(Crawl(site, store, tmp_path, start_command)) as crawl,
    ):
        await crawl.begin_all()
        await crawl.finished()
        await check(crawl)
        assert len(site.asks) == 101


@pytest.mark.parametrize("processes", [1, 3])
async def test_killed_and_typed_again(
    store: str, tmp_path: Path, nursery: Nursery, shows: Evidence, processes: int
) -> None:
    await _kill_all(Trial(store, tmp_path, nursery.start, seed=7), processes, shows)


async def test_one_of_three_is_killed_and_replaced(
    store: str, tmp_path: Path, nursery: Nursery, shows: Evidence
) -> None:
    await _kill_one(Trial(store, tmp_path, nursery.start, seed=11), shows)


@pytest.mark.parametrize("rounds", [4, pytest.param(40, marks=pytest.mark.slow)])
async def test_killed_while_it_ends(
    store: str, tmp_path: Path, nursery: Nursery, shows: Evidence, rounds: int
) -> None:
    """When the last pages are settled and the index is written."""
    with told(17 if rounds == 4 else seed_of(31)) as dice:
        for number in range(rounds):
            folder = tmp_path / f"{number}"
            folder.mkdir()
            async with (
                NotedSite(12) as site,
                looked_after(Crawl(site, store, folder, nursery.start)) as crawl,
            ):
                crawl.run_id = f"run{number}"
                await kill_again_and_again(crawl, [Instant(12, dice.uniform(0, 0.06), look=True)])
                await crawl.finished()
                await _show(crawl, shows)
                await check(crawl)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 3])
async def test_killed_at_twenty_instants(
    store: str, tmp_path: Path, shows: Evidence, processes: int
) -> None:
    """Every process is started as a user would."""
    trial = Trial(store, tmp_path, start_command, seed=23, pages=400, kills=20, startup=1.2)
    await _kill_all(trial, processes, shows)


@pytest.mark.slow
async def test_one_of_three_is_killed_twenty_times(
    store: str, tmp_path: Path, shows: Evidence
) -> None:
    trial = Trial(store, tmp_path, start_command, seed=29, pages=400, kills=20, startup=1.2)
    await _kill_one(trial, shows)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["one process", "three processes", "one of three"])
async def test_killed_at_instants_that_nobody_chose(
    store: str, tmp_path: Path, nursery: Nursery, shows: Evidence, how: str
) -> None:
    """``CRAWL_SEED=any`` draws others at every run."""
    trial = Trial(store, tmp_path, nursery.start, seed_of(37), pages=400, kills=20)
    if how == "one of three":
        await _kill_one(trial, shows)
    else:
        await _kill_all(trial, 1 if how == "one process" else 3, shows)


async def _show(crawl: Crawl, shows: Evidence) -> None:
    """Against a crawl that was left alone: as many asked for, accepted and finished."""
    site, stats = crawl.site, await crawl.stats()
    again = sum(site.page_counts().values()) - site.pages
    shows("F68", "pages lost", len(set(site.paths()) - set(site.page_counts())), exactly=0)
    shows("F68", "pages asked for again", again, at_most=most_again(crawl))
    shows("F68", "finished pages asked for again", len(finished_again(crawl)), exactly=0)
    shows("F68", "frontier larger or smaller", abs(stats.keyed - site.pages - 1), exactly=0)


@dataclass(frozen=True)
class Trial:
    """``startup`` is about how long a command takes until it asks for its first page."""

    store: str
    folder: Path
    start: Start
    seed: int
    pages: int = 160
    kills: int = 6
    startup: float = 0.25

    def instants(self, dice: random.Random) -> list[Instant]:
        """None may come too late, so the last is before the last page is answered; for the very
        end there is a test of its own."""
        *early, last = instants(dice, self.kills, self.pages, startup=self.startup)
        return [*early, last._replace(pages=self.pages - _AHEAD - 1)]

    def crawl(self, site: NotedSite, processes: int) -> Crawl:
        return Crawl(site, self.store, self.folder, self.start, processes=processes)


async def _kill_all(trial: Trial, processes: int, shows: Evidence) -> None:
    async with (
        NotedSite(trial.pages) as site,
        looked_after(trial.crawl(site, processes)) as crawl,
    ):
        await crawl.forgive_deaths()
        with told(trial.seed) as dice:
            await kill_again_and_again(crawl, trial.instants(dice))
            await crawl.finished()
            await _show(crawl, shows)
            await check(crawl)
        shows("F68", "kills", len(crawl.kills), exactly=trial.kills)


async def _kill_one(trial: Trial, shows: Evidence) -> None:
    async with (
        NotedSite(trial.pages, delay=0.03) as site,
        looked_after(trial.crawl(site, 3)) as crawl,
    ):
        await crawl.forgive_deaths()
        with told(trial.seed) as dice:
            await kill_one_after_another(crawl, trial.instants(dice), dice)
            await crawl.finished()
            await _show(crawl, shows)
            await check(crawl)
        shows("F68", "kills", len(crawl.kills), exactly=trial.kills)
