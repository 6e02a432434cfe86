"""The demo itself: start a worker, kill it, start it again, and see that nothing is lost."""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import Process
from rich.console import Console

from data_fetcher_core import QueueOptions, open_queue
from data_fetcher_core.cli.demo.account import Account, Kill, Ledger, draw_up
from data_fetcher_core.cli.demo.progress import Display, showing
from data_fetcher_core.cli.demo.site import HOSTS, Site, entries
from data_fetcher_core.cli.demo.worker import STORE_VARIABLE
from data_fetcher_core.cli.exit_codes import ExitCode
from data_fetcher_core.errors import DataFetcherError, StoreError
from data_fetcher_core.queue import KVStoreQueue

_LOOK_EVERY = 0.01
_SHOW_EVERY = 0.1
# A kill is due after a number of pages begun, drawn from this part of the run ...
_FIRST_KILL, _LAST_KILL = 0.1, 0.85
# ... and comes up to this much later: in the middle of anything the worker may be doing.
_HESITATION = 0.05
_PATIENCE = 5.0


@dataclass
class Stage:
    """One performance, in a folder of its own."""

    store: str
    run_id: str
    site: Site
    kills_wanted: int
    folder: Path
    forget: bool
    kills: list[Kill] = field(default_factory=list)
    console: Console = field(default_factory=Console)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.folder / "ledger.txt")
        self._log = self.folder / "worker.log"
        self._kills_due = _draw_kills(self.site.pages, self.kills_wanted)
        self._shown_at = 0.0

    async def perform(self) -> Account:
        # The kills are ours: no page is to be taken for the cause of them.
        options = QueueOptions(max_deaths=self.kills_wanted + 2, op_timeout=_PATIENCE)
        async with open_queue(self.store, run_id=self.run_id, options=options) as queue:
            try:
                await self._enqueue_front_pages(queue)
                with showing(self.console, self.site.pages) as display:
                    while await self._was_killed(queue, display):
                        pass
                    display.show(await queue.stats())
                return await self._account(queue)
            finally:
                await self._tidy(queue)

    async def _enqueue_front_pages(self, queue: KVStoreQueue) -> None:
        accepted = await queue.enqueue(entries(self.site.front_pages()))
        self.say(
            f"A pretend site of {self.site.pages} pages on {len(HOSTS)} hosts. "
            f"{int(accepted)} front pages are enqueued; the others are found by links."
        )

    async def _was_killed(self, queue: KVStoreQueue, display: Display) -> bool:
        """Let a worker run; whether it was killed, by us or anybody, or came to its end."""
        before, due = self.ledger.read_on(), self._next_kill()
        async with self._worker() as worker:
            while worker.returncode is None:
                if self.ledger.read_on() >= due:
                    await anyio.sleep(random.uniform(0, _HESITATION))  # noqa: S311 - a surprise
                    await _end(worker)
                else:
                    await self._show(queue, display)
                    await anyio.sleep(_LOOK_EVERY)
        if worker.returncode == ExitCode.FINISHED:
            return False
        if worker.returncode > 0 or self.ledger.read_on() == before:
            raise self._failure(worker.returncode)
        await self._note_kill(worker, queue)
        return True

    def _failure(self, code: int) -> DataFetcherError:
        """What the worker ended with, when it ended by itself and not well."""
        kind = StoreError if code == ExitCode.STORE else DataFetcherError
        return kind(f"the worker ended with {code}: {self._log.read_text()[-2000:].strip()}")

    def _next_kill(self) -> float:
        """After how many pages begun to kill; never before the new worker has begun one."""
        if not self._kills_due:
            return float("inf")
        return max(self._kills_due.pop(0), self.ledger.read_on() + 1)

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[Process]:
        command = [sys.executable, "-P", "-m", "data_fetcher_core.cli.demo.worker"]
        command += [self.run_id, str(self.site.pages), str(self.ledger.path)]
        if not self.kills:
            self.say(f"Worker: {shlex.join(command)}")
        with self._log.open("ab") as log, anyio.CancelScope(shield=True):
            # In a session of its own, so that Ctrl-C reaches it through us alone.
            worker = await anyio.open_process(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, STORE_VARIABLE: self.store},
                start_new_session=True,
            )
        try:
            self.say(f"started, pid {worker.pid}")
            yield worker
        finally:
            with anyio.CancelScope(shield=True):
                await _end(worker)
                await worker.aclose()

    async def _note_kill(self, worker: Process, queue: KVStoreQueue) -> None:
        stats = await queue.stats()
        self.kills.append(Kill(worker.pid, stats.leased))
        self.say(
            f"kill -9 {worker.pid}: {stats.completed} completed, {stats.leased} in flight. "
            "The same command again:"
        )

    async def _show(self, queue: KVStoreQueue, display: Display) -> None:
        if time.monotonic() - self._shown_at >= _SHOW_EVERY:
            self._shown_at = time.monotonic()
            display.show(await queue.stats())

    async def _account(self, queue: KVStoreQueue) -> Account:
        self.ledger.read_on()
        return draw_up(
            expected=self.site.urls(),
            stats=await queue.stats(),
            completed=await _completed(queue),
            dead=[str(dead.item.url) async for dead in queue.dead_letters() if dead.item],
            begun=self.ledger.lines,
            kills=self.kills,
        )

    async def _tidy(self, queue: KVStoreQueue) -> None:
        if self.forget:
            with anyio.move_on_after(_PATIENCE, shield=True), suppress(StoreError):
                await queue.forget()

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)


def _draw_kills(pages: int, kills: int) -> list[int]:
    drawn = (random.uniform(_FIRST_KILL, _LAST_KILL) for _ in range(kills))  # noqa: S311 - no secret
    return sorted(round(pages * share) for share in drawn)


async def _completed(queue: KVStoreQueue) -> list[str]:
    found: list[str] = []
    last = 0
    while page := await queue.results(after=last):
        found += [url for _, url in page]
        last = page[-1][0]
    return found


async def _end(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    await process.wait()
