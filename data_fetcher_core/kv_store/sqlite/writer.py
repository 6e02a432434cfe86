"""The thread behind a store: all work on the file is done here, and all waiting for it."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from data_fetcher_core.errors import StoreError, StoreUnavailable
from data_fetcher_core.kv_store.sqlite.commit import GroupCommit
from data_fetcher_core.kv_store.sqlite.forking import rest_at_fork
from data_fetcher_core.kv_store.sqlite.handover import Handover
from data_fetcher_core.kv_store.sqlite.outcomes import Blocked, Failed, Kept, Outcome
from data_fetcher_core.kv_store.sqlite.session import Session
from data_fetcher_core.kv_store.sqlite.transaction import SQLiteTransaction

_log = logging.getLogger("data_fetcher_core.kv_store.sqlite")

_GROUP = 128
_POLL = 0.001
# Longer than a poll, so that a process which waits gets the lock before this one has it again.
_COURTESY = 0.002


@dataclass(slots=True, eq=False)
class _Job:
    fn: Callable[[SQLiteTransaction], Any]
    urgent: bool
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Kept | Failed]
    since: float = field(default_factory=time.monotonic)


class Writer:
    """Takes functions from any event loop, runs them in groups, answers when they are durable."""

    def __init__(self, session: Session, busy_timeout: float) -> None:
        self.pid = os.getpid()
        self.session = session
        self._commit = GroupCommit(session)
        self._budget = busy_timeout
        self._blocked_since: float | None = None
        self._inbox: SimpleQueue[_Job | None] = SimpleQueue()
        self._handover = Handover()
        self._stopping = False
        # Held while the file is in use, so that a fork finds it closed.
        self._turn = threading.RLock()
        self._ended: list[Callable[[], None]] = []
        self._thread = threading.Thread(
            target=self._main, name=f"sqlite-writer {session.path.name}", daemon=True
        )

    def start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError as error:
            raise StoreUnavailable(f"no thread for {self.session.path}: {error}") from error
        rest_at_fork(self)

    async def run(self, fn: Callable[[SQLiteTransaction], Any], *, urgent: bool) -> Any:
        loop = asyncio.get_running_loop()
        job = _Job(fn, urgent, loop, loop.create_future())
        self._inbox.put(job)
        with self._handover.while_waiting(loop):
            outcome = await job.answer
        if isinstance(outcome, Failed):
            raise outcome.error
        return outcome.value

    def stop(self) -> None:
        """End the thread after what already waits; does not wait for it."""
        self._inbox.put(None)

    async def finish(self) -> None:
        """End the thread after what already waits, and wait until the files are closed."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        self._ended.append(lambda: _call_soon(loop, ended.set))
        self.stop()
        await ended.wait()
        self._thread.join()

    def pause(self) -> None:
        self._turn.acquire()
        self._close()

    def resume(self) -> None:
        self._turn.release()

    def _main(self) -> None:
        waiting: list[_Job] = []
        while waiting or not self._stopping:
            self._collect(waiting)
            waiting = self._serve([job for job in waiting if not job.answer.cancelled()])
        self._close()
        for tell in self._ended:
            tell()

    def _collect(self, waiting: list[_Job]) -> None:
        """Wait for a first job if there is none; then take what is there, up to a full group."""
        block = not waiting
        while len(waiting) < _GROUP:
            try:
                job = self._inbox.get(block=block)
            except Empty:
                return
            if job is None:
                self._stopping = True
                return
            waiting.append(job)
            block = False

    def _serve(self, jobs: list[_Job]) -> list[_Job]:
        """Answer what can be answered; return what has to wait for somebody else's lock."""
        if not jobs:
            return []
        with self._turn:
            outcomes = self._outcomes(jobs)
        answers: list[tuple[_Job, Kept | Failed]] = []
        blocked: list[_Job] = []
        for job, outcome in zip(jobs, outcomes, strict=True):
            final = self._final(job, outcome)
            if final is None:
                blocked.append(job)
            else:
                answers.append((job, final))
        _deliver(answers)
        if blocked or self._commit.others_wait:
            time.sleep(_POLL if blocked else _COURTESY)
        return blocked

    def _outcomes(self, jobs: list[_Job]) -> list[Outcome]:
        try:
            return self._commit.run(jobs)
        except Exception as error:  # noqa: BLE001 - nobody may wait for a thread that has died
            _log.exception("unexpected failure of %s", self.session.path)
            self.session.close(force=True)
            return [Failed(StoreError(f"{self.session.path}: {error!r}")) for _ in jobs]

    def _final(self, job: _Job, outcome: Outcome) -> Kept | Failed | None:
        """What to answer now, or ``None`` while there is time left to wait for the lock.

        The budget runs from when the lock was first found taken, or the job came: time spent
        behind other jobs is no reason to give up.
        """
        if not isinstance(outcome, Blocked):
            self._blocked_since = None
            return outcome
        now = time.monotonic()
        if self._blocked_since is None:
            self._blocked_since = now
        if now - max(job.since, self._blocked_since) < self._budget:
            return None
        return Failed(
            StoreUnavailable(
                f"{outcome.holder()} holds {self.session.path} and did not let go within "
                f"{self._budget:g} s (busy_timeout): see whether it hangs or is stopped"
            )
        )

    def _close(self) -> None:
        """Close under the lock if it can be had in time; who has it keeps the log in place."""
        deadline = time.monotonic() + self._budget
        while not self._closed(force=time.monotonic() >= deadline):
            time.sleep(_POLL)

    def _closed(self, *, force: bool) -> bool:
        with self._turn:
            return self.session.close(force=force)


def _deliver(answers: Iterable[tuple[_Job, Kept | Failed]]) -> None:
    """Wake each loop once, however many of its callers are answered."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Job, Kept | Failed]]] = {}
    for job, outcome in answers:
        by_loop.setdefault(job.loop, []).append((job, outcome))
    for loop, batch in by_loop.items():
        _call_soon(loop, partial(_resolve, batch))


def _resolve(batch: Iterable[tuple[_Job, Kept | Failed]]) -> None:
    for job, outcome in batch:
        if not job.answer.done():
            job.answer.set_result(outcome)


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    # A loop that has closed has nobody left who waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)
