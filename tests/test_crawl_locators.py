"""Locators that are killed between two pages of their provider: nothing is asked for again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web

from tests.crawls import RUN, Crawl, NotedSite, index_of, looked_after, nursery, seed_of, told
from tests.programs import Nursery, Program

__all__ = ["nursery"]

API_PAGES, ITEMS = 40, 6
API = "/api"

# As a user would write it. The process tells who it is, so that the provider can note it.
RECIPE = """
import os
import aiohttp
from data_fetcher_core.core import FetcherRecipe, RequestMeta
from data_fetcher_core.loader import HttpLoader, HttpOptions
from data_fetcher_core.recipes import CursorLocator

PROVIDER = {url!r}
WHO = {{"X-Process": str(os.getpid())}}

async def ask(cursor):
    async with aiohttp.ClientSession(headers=WHO) as session:
        async with session.get(PROVIDER + "/api", params={{"cursor": cursor or 0}}) as answer:
            found = await answer.json()
    return [RequestMeta(PROVIDER + path) for path in found["items"]], found["next"]

loader = HttpLoader(HttpOptions(headers=WHO, allow_private=True))
recipe = FetcherRecipe("prices", [CursorLocator(ask)], loader)
"""


class Provider(NotedSite):
    """Pages of links to items, each with the cursor of the next."""

    def __init__(self) -> None:
        super().__init__(1 + API_PAGES * ITEMS, delay=0.002)

    def _page(self, path: str) -> web.Response:
        if not path.startswith(API):
            return super()._page(path)
        number = int(path.partition("=")[2])
        following = number + 1 if number + 1 < API_PAGES else None
        return web.json_response({"items": self.items(number), "next": following})

    def items(self, number: int) -> list[str]:
        return [f"/p/{1 + number * ITEMS + n}" for n in range(ITEMS)]

    @property
    def asked_cursors(self) -> int:
        return sum(1 for path in self.counts if path.startswith(API))


class RecipeRun(Crawl):
    """The same command, with a recipe instead of a site."""

    def begin(self) -> Program:
        recipe = self.folder / "prices.py"
        recipe.write_text(RECIPE.format(url=self.site.url))
        number = len(self.programs) + 1
        words = ["run", f"{recipe}:recipe", "--run-id", RUN, "--store", self.store]
        where = ["--out", str(self.out), "--concurrency", "4", "--per-host", "0"]
        self.programs[number] = self.start([*words, *where], self.folder / f"process-{number}.txt")
        return self.programs[number]

    async def turns(self) -> int:
        """How many pages the provider has given: their items are there, and no others are."""
        async with self.queue() as queue:
            saved = await queue.checkpoint("locator:0-CursorLocator")
            accepted = (await queue.stats()).keyed
        turns = 0 if saved is None else int(saved["turn"])
        # The turns of the locator are a request, too; the last of them gave nothing.
        assert max(accepted - 1, 0) == ITEMS * min(turns, API_PAGES)
        return turns


@pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)
@pytest.mark.parametrize(("kills", "seed"), [(8, 21), pytest.param(15, 41, marks=pytest.mark.slow)])
async def test_a_provider_is_never_asked_again_for_what_it_gave(
    store_url: str, tmp_path: Path, nursery: Nursery, kills: int, seed: int
) -> None:
    async with (
        Provider() as site,
        looked_after(RecipeRun(site, store_url, tmp_path, nursery.start)) as run,
    ):
        await run.forgive_deaths()
        with told(seed if kills == 8 else seed_of(seed)) as dice:
            deaths = [
                await _die(run, site, cursors, dice.uniform(0, 0.03))
                for cursors in sorted(dice.sample(range(API_PAGES), kills))
            ]
            run.begin()
            await run.finished()
            _check_cursors(site, deaths)
            _check_items(site, run)
        assert len(run.kills) == kills


class Death(NamedTuple):
    """Who was killed, and how many pages of the provider had been given by then."""

    pid: int
    turns: int


async def _die(run: RecipeRun, site: Provider, cursors: int, delay: float) -> Death:
    program = run.begin()
    await run.until(lambda: site.asked_cursors >= cursors)
    await asyncio.sleep(delay)
    await run.kill()
    return Death(program.pid, await run.turns())


def _check_cursors(site: Provider, deaths: list[Death]) -> None:
    """Asked for again is only what was in flight at a kill, and by one who came later."""
    asks = [ask for ask in site.asks if ask.path.startswith(API)]
    assert {ask.path for ask in asks} == {f"{API}?cursor={n}" for n in range(API_PAGES)}
    assert len(set(asks)) == len(asks) <= API_PAGES + len(deaths)
    order = [death.pid for death in deaths]
    for death in deaths:
        earlier = order[: order.index(death.pid) + 1]
        later = {ask.path for ask in asks if ask.process not in earlier}
        assert not later & {f"{API}?cursor={n}" for n in range(death.turns)}


def _check_items(site: Provider, run: RecipeRun) -> None:
    urls = [line["url"] for line in index_of(run.out)]
    assert sorted(urls) == sorted(site.urls() - {site.start})
    killed = {run.programs[number].pid for kill in run.kills for number in kill.killed}
    asks = [ask for ask in site.asks if ask.path.startswith("/p/")]
    assert len(set(asks)) == len(asks) <= len(urls) + len(run.kills) * run.concurrency
    for path in site.paths():
        askers = [ask.process for ask in asks if ask.path == path]
        assert set(askers[:-1]) <= killed
