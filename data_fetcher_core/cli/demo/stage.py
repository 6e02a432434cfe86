"""The demo itself: serve a site, crawl it, kill the crawl, start it again, draw up the account."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import Process
from yarl import URL

from data_fetcher_core.cli.demo.account import Account, Evidence, Kill, draw_up
from data_fetcher_core.cli.demo.crawler import Crawler, end
from data_fetcher_core.cli.demo.server import SiteServer
from data_fetcher_core.cli.demo.site import Site
from data_fetcher_core.cli.demo.witnesses import Witnesses
from data_fetcher_core.cli.exit_codes import ExitCode
from data_fetcher_core.cli.naming import id_from_urls
from data_fetcher_core.cli.places import Place
from data_fetcher_core.errors import DataFetcherError, StoreError

# A kill comes up to this much later than it is due: in the middle of anything.
_HESITATION = 0.05
_EARLIEST_LAST = 0.15
_PROGRESS_EVERY = 1.0
_PATIENCE = 5.0

Say = Callable[[str], None]


@dataclass
class Stage:
    """One performance. ``shows_crawl`` lets the crawl draw its own view on the terminal."""

    site: Site
    place: Place
    folder: Path
    kills_wanted: int
    say: Say
    shows_crawl: bool = False
    kills: list[Kill] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._server = SiteServer(self.site)
        self._chance = random.Random(self.site.seed)  # noqa: S311 - no secret
        self._due = list(_draw_kills(self.site.pages, self.kills_wanted, self._chance))

    @property
    def out(self) -> Path:
        return self.folder / "pages"

    @property
    def run_id(self) -> str:
        """The one that the crawl makes from its URL."""
        return id_from_urls("crawl", [URL(self._server.url)])

    async def perform(self) -> Account:
        begun = time.monotonic()
        async with self._server.running():
            self.say(f"A site of {self.site.pages} pages is served at {self._server.url}/")
            self.say("")
            crawler, witnesses = self._crawler(), self._witnesses()
            while await self._was_killed(crawler, witnesses):
                self.say("\nThe same command again:")
            return await self._account(witnesses, begun)

    async def forget(self) -> None:
        """A store that fails is told by what failed first."""
        with anyio.move_on_after(_PATIENCE, shield=True), suppress(StoreError):
            await self._witnesses().forget()

    async def _was_killed(self, crawler: Crawler, witnesses: Witnesses) -> bool:
        """Let it crawl; whether it was killed, by us or anybody, or came to its end."""
        before = self._server.asked.total()
        async with crawler.running() as process:
            self.say(f"$ {crawler.command}")
            self.say(f"  its pid is {process.pid}")
            await self._watch(process)
        code = process.returncode
        if code == ExitCode.FINISHED:
            return False
        if code is None or code > 0 or self._server.asked.total() == before:
            raise self._failure(code, crawler)
        await self._note_kill(process, witnesses)
        return True

    async def _watch(self, process: Process) -> None:
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._kill_when_due, process)
            if not self.shows_crawl:
                beside.start_soon(self._tell_progress)
            await process.wait()
            beside.cancel_scope.cancel()

    async def _kill_when_due(self, process: Process) -> None:
        if self._due:
            # A crawl that has just begun gets to ask for something new.
            await self._server.until_asked(max(self._due.pop(0), len(self._server.asked) + 1))
            await anyio.sleep(self._chance.uniform(0, _HESITATION))
            await end(process)

    async def _tell_progress(self) -> None:
        while True:
            await anyio.sleep(_PROGRESS_EVERY)
            self.say(f"  {len(self._server.asked)} of {self.site.pages} pages asked for")

    async def _note_kill(self, process: Process, witnesses: Witnesses) -> None:
        await self._server.until_idle()
        _, done = await witnesses.done()
        kill = Kill(process.pid, dict(self._server.asked), done)
        self.kills.append(kill)
        self.say(
            f"kill -9 {process.pid}: {len(done)} pages done, {len(kill.in_flight)} in flight, "
            f"{self.site.pages - len(kill.asked)} not yet asked for"
        )

    async def _account(self, witnesses: Witnesses, begun: float) -> Account:
        stats, _ = await witnesses.done()
        return draw_up(
            Evidence(
                digests=await anyio.to_thread.run_sync(self.site.digests),
                kept=await witnesses.kept(),
                asked=self._server.asked,
                kills=self.kills,
                strangers=self._server.strangers,
                dead=stats.dead,
                unaccounted=stats.unaccounted,
                seconds=time.monotonic() - begun,
            )
        )

    def _crawler(self) -> Crawler:
        words = ["crawl", f"{self._server.url}/", "--allow-private", "--out", self.out.name]
        return Crawler(words, self.place.url, self.folder, self.shows_crawl)

    def _witnesses(self) -> Witnesses:
        return Witnesses(self.place, self.run_id, self.out, self._server.url)

    def _failure(self, code: int | None, crawler: Crawler) -> DataFetcherError:
        """What the crawl ended with, when it ended by itself and not well."""
        kind = StoreError if code == ExitCode.STORE else DataFetcherError
        return kind(f"the crawl ended with {code}: {crawler.complaint()}".removesuffix(": "))


def _draw_kills(pages: int, kills: int, chance: random.Random) -> Iterator[int]:
    """After how many pages: spread over the crawl, half-way if there is one."""
    for number in range(1, kills + 1):
        share = (number + chance.uniform(-_EARLIEST_LAST, _EARLIEST_LAST)) / (kills + 1)
        yield max(1, round(pages * share))
