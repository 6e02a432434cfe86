"""Runs whose loader kills or stops its process, or that lack what every process needs."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.core import Entry, FetchRunContext, Page, Priority, RequestMeta
from data_fetcher_core.fetcher import Fetcher, FetcherOptions
from data_fetcher_core.queue import KVStoreQueue, QueueOptions, RequestMetaSerializer
from data_fetcher_core.testing import ManualClock
from tests.conftest import OpenStore
from tests.crawls import (
    RUN,
    Crawl,
    NotedSite,
    check_output,
    index_of,
    looked_after,
    nursery,
)
from tests.evidence import Evidence
from tests.fetch_process import Note, Orders, read_notes
from tests.fetching import Loader, page, plan_of, url
from tests.harness import accounted
from tests.programs import Nursery, Program
from tests.waiting import until

__all__ = ["nursery"]

shared_stores = pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)


# --- poison --------------------------------------------------------------------------------------

DEADLY = """
import os
from data_fetcher_core.core import FetcherRecipe
from data_fetcher_core.loader import HttpLoader, HttpOptions
from data_fetcher_core.recipes import SiteLocator

class Loader(HttpLoader):
    async def load(self, request, storage, ctx, recipe):
        pages = await super().load(request, storage, ctx, recipe)
        if request.url.path == {deadly!r}:
            os._exit(9)
        return pages

loader = Loader(HttpOptions(headers={{"X-Process": str(os.getpid())}}, allow_private=True))
recipe = FetcherRecipe("deadly", [SiteLocator({start!r})], loader)
"""


class DeadlyRun(Crawl):
    """A recipe whose loader takes the process with it at one page."""

    deadly = "/p/30"

    def begin(self) -> Program:
        recipe = self.folder / "deadly.py"
        recipe.write_text(DEADLY.format(deadly=self.deadly, start=self.site.start))
        number = len(self.programs) + 1
        words = ["run", f"{recipe}:recipe", "--run-id", RUN, "--store", self.store]
        where = ["--out", str(self.out), "--concurrency", str(self.concurrency), "--per-host", "0"]
        self.programs[number] = self.start([*words, *where], self.folder / f"process-{number}.txt")
        return self.programs[number]


@shared_stores
async def test_a_page_that_kills_its_process_is_buried_and_no_other_with_it(
    store_url: str, tmp_path: Path, nursery: Nursery, shows: Evidence
) -> None:
    async with (
        NotedSite(60) as site,
        looked_after(DeadlyRun(site, store_url, tmp_path, nursery.start, concurrency=3)) as run,
    ):
        codes = [await run.begin().ended() for _ in range(6)]
        assert codes == [9, 9, 9, 9, 9, 3]
        listing = run.command("dead", "list", RUN, "--json")
        assert await listing.ended() == 0
        buried = json.loads(listing.said())["letters"]
        (letter,) = [one for one in buried if one["url"] == f"{site.url}{run.deadly}"]
        assert letter["reason"] == "poisoned"
        shows("F32", "deaths until it is buried", letter["deaths"], exactly=5)
        shows("F32", "neighbours buried with it", len(buried) - 1, exactly=0)
        lines = Counter(line["url"] for line in index_of(run.out))
        assert lines == dict.fromkeys(site.urls() - {letter["url"]}, 1)
        assert site.counts[run.deadly] == 5
        assert sum(site.page_counts().values()) <= 60 + 5 * run.concurrency


# --- a loop that stands still --------------------------------------------------------------------

LEASE_TTL = 0.6


@shared_stores
async def test_a_loader_that_blocks_the_loop_loses_nothing(
    store_url: str, tmp_path: Path, nursery: Nursery, shows: Evidence
) -> None:
    """Another process takes over what the silent one held; each is delivered twice at most."""
    ledger, urls = tmp_path / "ledger", [url(n) for n in range(60)]
    orders = partial(Orders, store_url, str(ledger), urls, queue={"lease_ttl": LEASE_TTL})
    blocking = orders(block={urls[20]: 8 * LEASE_TTL})
    first = _fetch(nursery, blocking, tmp_path / "first.txt")
    await until(lambda: any(note.event == "blocks" for note in read_notes(ledger)))
    second = _fetch(nursery, orders(), tmp_path / "second.txt")
    assert await second.ended() == 0, second.said()
    assert await first.ended() == 0, first.said()
    notes = read_notes(ledger)
    begun = Counter(note.subject for note in notes if note.event == "begun")
    assert set(begun) == set(urls)
    # What it held: a request for each of its workers, begun or on its way to them.
    twice = {name for name, times in begun.items() if times > 1}
    assert urls[20] in twice
    shows("F25", "requests delivered again", len(twice), at_most=blocking.concurrency)
    shows("F25", "extra deliveries of a request", max(begun.values()) - 1, at_most=1)
    # It was told, by the one who lost them and by the one who took them.
    heard = {"LeasesLost": first.pid, "ConsumerReaped": second.pid}
    told = sum((event, pid) in {note[:2] for note in notes} for event, pid in heard.items())
    shows("F25", "sides that were told", told, exactly=2)
    named = re.findall(r"the task 'worker \d+' blocks it", first.said())
    shows("F25", "warnings that name the task", len(named), at_least=1)
    await _check_done(notes, urls)
    shows("F25", "lost", len(set(urls) - _done(notes).keys()), exactly=0)


@shared_stores
async def test_alone_a_blocked_loop_costs_nothing(
    store_url: str, tmp_path: Path, nursery: Nursery
) -> None:
    ledger, urls = tmp_path / "ledger", [url(n) for n in range(30)]
    orders = Orders(
        store_url,
        str(ledger),
        urls,
        block={urls[10]: 3 * LEASE_TTL},
        queue={"lease_ttl": LEASE_TTL},
    )
    program = _fetch(nursery, orders, tmp_path / "only.txt")
    assert await program.ended() == 0, program.said()
    notes = read_notes(ledger)
    begun = Counter(note.subject for note in notes if note.event == "begun")
    assert begun == dict.fromkeys(urls, 1)
    await _check_done(notes, urls)


def _fetch(nursery: Nursery, orders: Orders, output: Path) -> Program:
    return nursery.start(orders.arguments(), output, module="tests.fetch_process")


async def _check_done(notes: list[Note], urls: list[str]) -> None:
    """Everything was settled by one, and once."""
    assert _done(notes) == dict.fromkeys(urls, 1)


def _done(notes: list[Note]) -> Counter[str]:
    return Counter(note.subject for note in notes if note.event == "Fetched")


# --- no files left -------------------------------------------------------------------------------


@shared_stores
@pytest.mark.parametrize("retries", [3, 0])
async def test_too_few_files_stop_the_crawl_and_lose_nothing(
    store_url: str, tmp_path: Path, nursery: Nursery, retries: int
) -> None:
    """No page and no host is to blame; with more files, the same command goes on and ends."""
    starve = partial(nursery.start, files=64)
    more = ("--no-breaker", "--retries", str(retries))
    async with (
        NotedSite(150, links_per_page=30, delay=0.1) as site,
        looked_after(Crawl(site, store_url, tmp_path, starve, concurrency=100, more=more)) as crawl,
    ):
        program = crawl.begin()
        code = await program.ended()
        if code != 0:
            assert code in {1, 4}, program.said()
            assert "Too many open files" in program.said()
            assert "Traceback" not in program.said()
        stats = await crawl.stats()
        assert (stats.leased, stats.dead, stats.unaccounted) == (0, 0, 0)
        crawl.start = nursery.start
        crawl.begin()
        await crawl.finished()
        check_output(site, crawl.out)


# --- a flood -------------------------------------------------------------------------------------


class Flood:
    """One request that can wait, and then urgent ones without end, or nearly."""

    def __init__(self) -> None:
        self.batches = [
            [Entry(RequestMeta(url(f"{batch}/{n}")), priority=Priority.VERY_HIGH) for n in range(5)]
            for batch in range(60)
        ]
        patient = Entry(RequestMeta(url("patient")), priority=Priority.VERY_LOW)
        self.batches[0].insert(0, patient)

    async def get_next_urls(self, ctx: FetchRunContext) -> list[Entry]:
        return self.batches.pop(0) if self.batches else []


async def test_a_flood_of_urgent_requests_starves_nobody(
    open_store: OpenStore, clock: ManualClock
) -> None:
    """A page takes a second; four levels of priority are a head start of 40 seconds."""
    served: list[str] = []

    def serve(request: RequestMeta) -> Page:
        served.append(str(request.url))
        clock.advance(1.0)
        return page(request)

    store = open_store()
    plan = plan_of(store, [Flood()], Loader(serve), concurrency=1, target_queue_size=20)
    options = FetcherOptions(queue=QueueOptions(ageing_step=10.0))
    await Fetcher(options, clock=clock, subscriber=lambda _: None).run(plan)
    assert len(served) == 301
    # Those that came before the 40 seconds were over go first: as many as were ready at once.
    assert 20 < served.index(url("patient")) <= 40 + 20 + 5
    queue: Any = KVStoreQueue(store, "fetch:test", RequestMetaSerializer(), clock=clock)
    assert (await accounted(queue)).completed == 301
