"""Crawls of a site on loopback by the command line, killed and started again; and their account.

The site notes who asked for what: every process sends its number along. So it can be told of
each page that was asked for twice whether the process that asked first was killed meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from aiohttp import web

from data_fetcher_core.core import QueueStats
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.queue import KVStoreQueue, QueueOptions, RequestMetaSerializer
from tests.harness import eventually
from tests.programs import Nursery, Program, Start
from tests.site import Site
from tests.waiting import until

RUN = "crawl"
ROBOTS = "/robots.txt"
_HEADER = "X-Process"
_PATIENCE = 40.0
# How many pages a crawl may get ahead of the instant at which it is to be killed.
_AHEAD = 15


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as ready:
        yield ready


class Ask(NamedTuple):
    path: str
    process: int


class NotedSite(Site):
    """Notes all that it is asked for, in order, and by whom.

    It is wide: where few pages are known, the same ones are in flight at every kill, and after
    five they are taken for what kills the crawler.
    """

    def __init__(self, pages: int, *, delay: float = 0.004, links_per_page: int = 20) -> None:
        super().__init__(pages, links_per_page, delay=delay)
        self.asks: list[Ask] = []
        self._answered: set[str] = set()
        self._allowed: float = math.inf
        self._allows_more = asyncio.Event()

    def allow(self, pages: float) -> None:
        """Answer no more different pages than this for now: whoever asks for others waits."""
        self._allowed = pages
        self._allows_more.set()
        self._allows_more = asyncio.Event()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asks.append(Ask(request.path_qs, int(request.headers.get(_HEADER, 0))))
        return await super()._answer(request)

    async def _take_time(self, path: str) -> None:
        await super()._take_time(path)
        while path not in self._answered and len(self._answered) >= self._allowed:
            await self._allows_more.wait()
        self._answered.add(path)

    async def __aexit__(self, *exc: object) -> None:
        self.allow(math.inf)
        await super().__aexit__(*exc)

    @property
    def asked_pages(self) -> int:
        """How many different pages were asked for so far."""
        return len(self.page_counts())

    @property
    def answered_pages(self) -> int:
        """How many of them were answered: others may be waiting until they are allowed."""
        return len(self._answered)

    def lines(self) -> set[tuple[str, int, str]]:
        """URL, status and digest of every page: what the index must say."""
        return {
            (f"{self.url}{path}", 200, hashlib.sha256(self.body(number).encode()).hexdigest())
            for number, path in enumerate(self.paths())
        }


@dataclass(frozen=True)
class Kill:
    """``killed`` are the processes that died; ``started`` is how many had been started by then.

    ``settled`` are the pages that were finished; ``None`` if nobody looked.
    """

    killed: frozenset[int]
    started: int
    settled: frozenset[str] | None = None


@dataclass
class Crawl:
    """One run, and all processes that ever worked on it, by number from 1 on."""

    site: NotedSite
    store: str
    folder: Path
    start: Start
    concurrency: int = 8
    processes: int = 1
    more: tuple[str, ...] = ()
    run_id: str = RUN
    programs: dict[int, Program] = field(default_factory=dict)
    kills: list[Kill] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.out = self.folder / "out"

    @property
    def running(self) -> dict[int, Program]:
        return {number: one for number, one in self.programs.items() if one.is_running}

    def begin(self) -> Program:
        """Type the command, for the first time or again."""
        own = ["--out", str(self.out), "--run-id", self.run_id, "--allow-private"]
        return self._launch(["crawl", self.site.start, *own])

    def join(self) -> Program:
        return self._launch(["work", self.run_id])

    def resume(self) -> Program:
        return self._launch(["resume", self.run_id])

    def command(self, *words: str) -> Program:
        """Another command on the same store."""
        output = self.folder / f"{'-'.join(words)}.txt"
        return self.start([*words, "--store", self.store], output)

    def _launch(self, words: list[str]) -> Program:
        number = len(self.programs) + 1
        how = ["--store", self.store, "--concurrency", str(self.concurrency), "--per-host", "0"]
        mark = ["--header", f"{_HEADER}: {number}"]
        output = self.folder / f"process-{number}.txt"
        program = self.start([*words, *how, *mark, *self.more], output)
        self.programs[number] = program
        return program

    async def begin_all(self) -> None:
        """One begins the run or goes on with it, the others join as soon as it is there."""
        program = self.begin()
        if self.processes > 1:
            await self.until(lambda: bool(self.site.asks) or not program.is_running)
            for _ in range(self.processes - 1):
                self.join()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Or until all processes have ended."""
        await until(lambda: condition() or not self.running, _PATIENCE)

    async def until_asked(self, pages: int) -> None:
        await self.until(lambda: self.site.asked_pages >= pages)

    async def until_settled(self, pages: int) -> None:
        async with self.queue() as queue:

            async def is_so_far() -> bool:
                return (await queue.stats()).completed >= pages

            await eventually(is_so_far, _PATIENCE)

    async def kill(self, numbers: Iterable[int] | None = None, *, look: bool = False) -> bool:
        """Kill these, or all that run; whether any died of it."""
        doomed = list(self.running if numbers is None else numbers)
        codes = await asyncio.gather(*(self.programs[number].kill() for number in doomed))
        killed = {number for number, code in zip(doomed, codes, strict=True) if code == -9}
        if killed:
            settled = frozenset(await self.settled()) if look else None
            self.kills.append(Kill(frozenset(killed), len(self.programs), settled))
        return bool(killed)

    async def ended(self) -> list[int]:
        """What those that run end with."""
        return [await program.ended() for program in self.running.values()]

    async def finished(self) -> None:
        """All that run end well; and the same command again says so, and asks for nothing."""
        running = list(self.running.values())
        for program in running:
            assert await program.ended() == 0, program.said()
        asked = len(self.site.asks)
        again = self.begin()
        assert await again.ended() == 0, again.said()
        assert "was finished before" in again.said()
        assert len(self.site.asks) == asked

    async def stats(self) -> QueueStats:
        async with self.queue() as queue:
            return await queue.stats()

    async def settled(self) -> set[str]:
        """The paths of the pages that the run has finished so far."""
        async with self.queue() as queue:
            lines = [entry for _, entry in await queue.results()]
        return {line["url"].removeprefix(self.site.url) for line in lines + index_of(self.out)}

    @asynccontextmanager
    async def queue(self, options: QueueOptions | None = None) -> AsyncIterator[KVStoreQueue]:
        async with create_kv_store(self.store) as store:
            queue = KVStoreQueue(
                store,
                f"fetch:{self.run_id}",
                RequestMetaSerializer(),
                options=options,
                subscriber=lambda _: None,
            )
            async with queue:
                yield queue

    async def forgive_deaths(self) -> None:
        """Before it begins: a page that is in flight at many kills is not taken for poison.

        By chance one may be in flight at five of twenty, and is then a dead letter, as promised.
        """
        async with self.queue(QueueOptions(max_deaths=1_000)) as queue:
            await queue.stats()

    async def end(self) -> None:
        for program in self.running.values():
            await program.kill()


C = TypeVar("C", bound=Crawl)


@asynccontextmanager
async def looked_after(crawl: C) -> AsyncIterator[C]:
    """What still runs at the end is killed; and what was said is shown if the test failed."""
    try:
        yield crawl
    except BaseException:
        for number, program in crawl.programs.items():
            print(f"--- process {number} ended with {program.code}\n{program.said()}")
        raise
    finally:
        await crawl.end()


# --- when to kill --------------------------------------------------------------------------------


class Instant(NamedTuple):
    """So long after so many pages were asked for; or, without pages, after the start."""

    pages: int | None
    delay: float
    look: bool


def instants(dice: random.Random, kills: int, pages: int, *, startup: float) -> list[Instant]:
    """Spread over the crawl; every fourth falls into a start, and the last into the end."""
    early = sorted(dice.sample(range(pages - 2 * _AHEAD), kills - 1))
    found = [Instant(number, dice.uniform(0, 0.03), dice.random() < 0.5) for number in early]
    for at in range(2, len(found), 4):
        found[at] = Instant(None, dice.uniform(0, startup), look=False)
    return [*found, Instant(pages, dice.uniform(0, 0.1), look=True)]


async def kill_again_and_again(crawl: Crawl, when: Iterable[Instant]) -> None:
    """Kill all at every instant, and start again what was typed before."""
    for instant in when:
        await crawl.begin_all()
        await come(crawl, instant)
        await crawl.kill(look=instant.look)
    crawl.site.allow(math.inf)
    await crawl.begin_all()


async def kill_one_after_another(
    crawl: Crawl, when: Iterable[Instant], dice: random.Random
) -> None:
    """Kill one of those that run, and put another in its place, while the others go on."""
    await crawl.begin_all()
    for instant in when:
        await come(crawl, instant)
        if not crawl.running:
            return
        await crawl.kill([dice.choice(list(crawl.running))])
        dice.choice((crawl.begin, crawl.join, crawl.resume))()
    crawl.site.allow(math.inf)


async def come(crawl: Crawl, instant: Instant) -> None:
    """Until then the crawl gets no further than it has to, so that it cannot end before."""
    pages = crawl.site.answered_pages if instant.pages is None else instant.pages
    crawl.site.allow(pages + _AHEAD)
    if instant.pages is not None:
        await crawl.until_asked(instant.pages)
    await asyncio.sleep(instant.delay)


# --- the account ---------------------------------------------------------------------------------


def index_of(out: Path) -> list[dict[str, Any]]:
    """The whole lines of an index, as far as it was written."""
    path = out / "index.jsonl"
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [json.loads(line) for line in whole.splitlines()]


def check_output(site: NotedSite, out: Path) -> None:
    """Every page is in the index once and under its digest, and nothing else is there."""
    assert (out / "index.jsonl").read_bytes().endswith(b"\n")
    lines = index_of(out)
    assert [line["n"] for line in lines] == list(range(1, site.pages + 1))
    assert {(line["url"], line["status"], line["digest"]) for line in lines} == site.lines()
    files = [file for file in (out / "pages").rglob("*") if not file.is_dir()]
    digests = {str(file.relative_to(out)): _digest(file) for file in files}
    assert digests == {line["path"]: line["digest"] for line in lines}
    assert all(path.replace("/", "").endswith(digest) for path, digest in digests.items())


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def check_asks(crawl: Crawl) -> None:
    """Nothing was asked for twice, but by one who came after another was killed with it."""
    killed = {number for kill in crawl.kills for number in kill.killed}
    times = Counter(crawl.site.asks)
    assert set(times.values()) <= {1}, [ask for ask in times if times[ask] > 1]
    askers: dict[str, list[int]] = {}
    for path, process in crawl.site.asks:
        askers.setdefault(path, []).append(process)
    assert set(askers) - {ROBOTS} == set(crawl.site.paths())
    for path, numbers in askers.items():
        if path != ROBOTS:
            assert set(numbers[:-1]) <= killed, (path, numbers, killed)
    extra = sum(len(numbers) - 1 for path, numbers in askers.items() if path != ROBOTS)
    most = most_again(crawl)
    assert extra <= most, f"{extra} pages were asked for again, {most} is the most"


def most_again(crawl: Crawl) -> int:
    """As many pages as can have been in flight when their process was killed."""
    return sum(len(kill.killed) for kill in crawl.kills) * crawl.concurrency


def finished_again(crawl: Crawl) -> set[str]:
    """What was finished when all were killed, and was asked for by one who came later."""
    return {
        ask.path
        for kill in crawl.kills
        for ask in crawl.site.asks
        if ask.process > kill.started and ask.path in (kill.settled or ())
    }


def check_robots(crawl: Crawl) -> None:
    """Once its answer is kept, nobody who comes later asks for it."""
    first_page = next(n for n, ask in enumerate(crawl.site.asks) if ask.path != ROBOTS)
    asker = crawl.site.asks[first_page].process
    late = [ask for ask in crawl.site.asks if ask.path == ROBOTS and ask.process > asker]
    assert len(late) <= crawl.processes - 1, late


async def check(crawl: Crawl) -> None:
    """The whole account: lost 0, finished pages fetched again 0, index and frontier as ever."""
    check_output(crawl.site, crawl.out)
    check_asks(crawl)
    assert not finished_again(crawl), "a finished page was asked for again"
    check_robots(crawl)
    stats = await crawl.stats()
    assert stats.unaccounted == 0, stats
    # The turns of the one locator are a request, too: accepted and dropped.
    assert (stats.enqueued, stats.keyed) == (crawl.site.pages + 1, crawl.site.pages + 1), stats
    assert (stats.completed, stats.cancelled) == (crawl.site.pages, 1), stats
    assert stats.size == stats.leased == stats.dead == stats.retried == 0, stats


def seed_of(usual: int) -> int:
    """The same at every run, so that a failure comes again. ``CRAWL_SEED`` is another one, or
    ``any`` for one that nobody knows before."""
    wanted = os.environ.get("CRAWL_SEED", str(usual))
    return random.randrange(2**32) if wanted == "any" else int(wanted)


@contextmanager
def told(seed: int) -> Iterator[random.Random]:
    """A seeded source of chance; the seed is shown when the test fails."""
    try:
        yield random.Random(seed)
    except BaseException:
        print(f"the seed was {seed}")
        raise
