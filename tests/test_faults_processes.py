"""Worker processes that are killed and stopped, and a Redis that is killed under them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.core import Entry
from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.queue import KVStoreQueue
from tests.conftest import StartRedis
from tests.evidence import Evidence
from tests.fault_support import bounded, open_run, results
from tests.harness import accounted, eventually, letters
from tests.servers import RedisServer
from tests.worker_process import Note, Orders, WorkerProcess, end_all, read_notes

__all__ = ["bounded"]

SLACK = 3


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that processes share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'run.db'}"
    redis_url: str = request.getfixturevalue("redis_url")
    return redis_url


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


# --- one worker ----------------------------------------------------------------------------------


async def test_what_a_killed_worker_held_is_taken_up_at_once(
    url: str, ledger: Path, shows: Evidence
) -> None:
    """On the same host nobody waits for the heart of a process that is gone."""
    orders = Orders(url, str(ledger), workers=3, waits_for_word=True)
    async with open_run(url) as queue:
        await queue.enqueue([0] * 3)
        with WorkerProcess(orders) as worker:
            for _ in range(3):
                assert await asyncio.to_thread(worker.hear) == "holding"
            assert await queue.lease() == []
            worker.kill()
            killed = time.monotonic()
            await eventually(lambda: _are_ready(queue, 3))
            taken_up = time.monotonic() - killed
            shows("F1", "taken up on the same host after", taken_up, at_most=1.0 * SLACK, unit="s")
        leases = await queue.lease(3)
        assert [lease.deaths for lease in leases] == [1, 1, 1]
        for lease in leases:
            await lease.complete()
        assert (await accounted(queue)).completed == 3


async def _are_ready(queue: KVStoreQueue, count: int) -> bool:
    await queue.sweep()
    return (await queue.stats()).ready == count


async def _are_ready_at_a_beat(queue: KVStoreQueue, count: int, lease_ttl: float) -> bool:
    """Looked at as often as a heart does: time that is spent asking is no silence of others."""
    await asyncio.sleep(lease_ttl / 6)
    return await _are_ready(queue, count)


async def test_the_same_command_again_goes_on_at_once(url: str, ledger: Path) -> None:
    orders = Orders(url, str(ledger), workers=3, waits_for_word=True)
    async with open_run(url) as queue:
        await queue.enqueue([0] * 3)
    with WorkerProcess(orders) as first:
        for _ in range(3):
            assert await asyncio.to_thread(first.hear) == "holding"
        first.end()
        started = time.monotonic()
        with WorkerProcess(orders) as second:
            for _ in range(3):
                assert await asyncio.to_thread(second.hear) == "holding"
            # Most of it is the start of the interpreter.
            assert time.monotonic() - started < 3.0 * SLACK
            second.tell()
            assert await asyncio.to_thread(second.process.wait, 20) == 0
    async with open_run(url) as queue:
        assert (await accounted(queue)).completed == 3
    assert Counter(note.event for note in read_notes(ledger)) == {"begun": 6, "done": 3}


async def test_a_worker_that_was_stopped_for_too_long_changes_nothing(
    url: str, ledger: Path, shows: Evidence
) -> None:
    lease_ttl = 1.0
    orders = Orders(
        url, str(ledger), workers=1, waits_for_word=True, options={"lease_ttl": lease_ttl}
    )
    async with open_run(url, lease_ttl=lease_ttl) as queue:
        await queue.enqueue([Entry(1, id="page")])
        with WorkerProcess(orders) as worker:
            assert await asyncio.to_thread(worker.hear) == "holding"
            await _stop_outside_a_step(worker, queue)
            stopped = time.monotonic()
            await eventually(lambda: _are_ready_at_a_beat(queue, 1, lease_ttl))
            taken = (time.monotonic() - stopped) / lease_ttl
            shows("F24", "leases until another has it", taken, at_most=1.5 * SLACK)
            (lease,) = await queue.lease()
            assert lease.deaths == 1
            await lease.complete(result="the other's")
            await asyncio.sleep(stopped + 2 * lease_ttl - time.monotonic())
            os.kill(worker.pid, signal.SIGCONT)
            worker.tell()
            assert await asyncio.to_thread(worker.process.wait, 20) == 0
        stats = await accounted(queue)
        shows("F24", "completions", stats.completed, exactly=1)
        shows("F24", "requests that the zombie added", stats.enqueued - 1, exactly=0)
        assert await results(queue) == ["the other's"]
    refused = [note.event for note in read_notes(ledger)] == ["begun", "lost"]
    shows("F24", "settlements of the zombie refused", int(refused), exactly=1)


async def _stop_outside_a_step(worker: WorkerProcess, queue: KVStoreQueue) -> None:
    """A process that is stopped while it writes to a file keeps everybody from it: try again."""
    while True:
        os.kill(worker.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(0.5):
                await queue.stats()
        except (TimeoutError, StoreUnavailable):
            os.kill(worker.pid, signal.SIGCONT)
            await asyncio.sleep(0.05)
        else:
            return


# --- many workers, all of them in danger ---------------------------------------------------------


class Crew:
    """Worker processes on one run; whoever is killed is replaced."""

    def __init__(self, orders: Orders, count: int) -> None:
        self._orders = orders
        self._ledger = Path(orders.ledger)
        self.killed: list[int] = []
        self._former: list[WorkerProcess] = []
        self._workers = [WorkerProcess(orders) for _ in range(count)]

    def kill_one(self) -> None:
        """Of those that live: one may have ended in the instant before."""
        for place in random.sample(range(len(self._workers)), len(self._workers)):
            if self._is_killed(place):
                return
        raise AssertionError("all had ended before")

    def _is_killed(self, place: int) -> bool:
        """Whether it died of that; who did has a successor."""
        worker = self._workers[place]
        worker.kill()
        if not _died_of_it(worker):
            return False
        self.killed.append(worker.pid)
        self._former.append(worker)
        self._workers[place] = WorkerProcess(self._orders)
        return True

    async def run(self, faults: list[Callable[[], None]], total: int) -> None:
        """Work it all off, with a fault after every so many requests."""
        for number, fault in enumerate(faults, start=1):
            # Enough is left that nobody goes home before the last one.
            await self._until_begun(total * number // (len(faults) + 5))
            await asyncio.sleep(random.uniform(0, 0.05))
            await asyncio.to_thread(fault)
        for worker in self._workers:
            assert await asyncio.to_thread(worker.process.wait, 60) == 0

    async def _until_begun(self, count: int) -> None:
        async def is_far_enough() -> bool:
            await asyncio.sleep(0.02)
            return sum(note.event == "begun" for note in read_notes(self._ledger)) >= count

        await eventually(is_far_enough, within=60.0)

    def end(self) -> None:
        end_all([*self._workers, *self._former])


def _died_of_it(worker: WorkerProcess) -> bool:
    """It stays a zombie: nobody waits for it, who looks here neither."""
    if worker.process.returncode is not None:
        return False
    end = os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    return end is not None and end.si_code == os.CLD_KILLED


@asynccontextmanager
async def _crew(orders: Orders, count: int) -> AsyncIterator[Crew]:
    crew = Crew(orders, count)
    try:
        yield crew
    finally:
        crew.end()


async def _check(queue: KVStoreQueue, crew: Crew, notes: list[Note], total: int) -> None:
    """Everything was done once; whatever was begun more often, for a reason that was noted."""
    stats = await accounted(queue)
    assert await letters(queue) == []
    assert (stats.enqueued, stats.completed) == (total, total)
    assert stats.size == stats.leased == 0
    done = Counter(await results(queue))
    assert len(done) == sum(done.values()) == total
    begun = Counter(note.name for note in notes if note.event == "begun")
    assert begun.keys() == done.keys()
    reasons = Counter(note.name for note in notes if note.event == "cancelled")
    for note, times in _never_ended(notes).items():
        assert note.pid in crew.killed, note
        reasons[note.name] += times
    unexplained = {name: begun[name] for name in begun if begun[name] > 1 + reasons[name]}
    assert not unexplained


def _never_ended(notes: list[Note]) -> Counter[Note]:
    """What was begun, without what was done or cancelled; nothing may end in any other way."""
    events = Counter(note.event for note in notes)
    assert set(events) <= {"begun", "done", "cancelled"}, events
    open_ones = Counter(note for note in notes if note.event == "begun")
    open_ones.subtract(note._replace(event="begun") for note in notes if note.event != "begun")
    return +open_ones


@pytest.mark.slow
async def test_two_processes_that_are_killed_on_one_store(
    url: str, ledger: Path, shows: Evidence
) -> None:
    options: dict[str, Any] = {"max_deaths": 50}
    orders = Orders(url, str(ledger), workers=5, options=options)
    async with open_run(url, **options) as queue:
        await queue.enqueue([Entry(1, lane=f"lane{n % 3}") for n in range(400)])
        async with _crew(orders, 2) as crew:
            await crew.run([crew.kill_one] * 5, 800)
            notes = read_notes(ledger)
            await _check(queue, crew, notes, 800)
        begun, kills = sum(note.event == "begun" for note in notes), len(crew.killed)
        shows("F1", "workers killed", kills, exactly=5)
        shows("F1", "lost of 800", 800 - len(set(await results(queue))), exactly=0)
        shows("F1", "begun again", begun - 800, at_most=kills * orders.workers)


@pytest.mark.slow
async def test_a_redis_that_is_killed_under_its_workers(
    each_redis: RedisServer, start_redis: StartRedis, ledger: Path
) -> None:
    server = start_redis(each_redis.binary, appendonly="yes", appendfsync="always")
    orders = Orders(server.url, str(ledger), workers=10)
    async with open_run(server.url) as queue:
        await queue.enqueue([Entry(1, lane=f"lane{n % 3}") for n in range(400)])
        async with _crew(orders, 2) as crew:
            await crew.run([server.restart] * 4, 800)
            await _check(queue, crew, read_notes(ledger), 800)


@pytest.mark.slow
async def test_the_load_that_every_change_must_hold(start_redis: StartRedis, ledger: Path) -> None:
    """5,000 requests, 4 processes of 25, 10 of them killed, Redis killed 3 times, 1,000 cancels."""
    start = time.monotonic()
    server = start_redis(appendonly="yes", appendfsync="always")
    options: dict[str, Any] = {"max_deaths": 50}
    orders = Orders(
        server.url, str(ledger), workers=25, longest_work=0.02, cancels=1_000, options=options
    )
    async with open_run(server.url, **options) as queue:
        await queue.enqueue([Entry(1, lane=f"lane{n % 7}") for n in range(2_500)])
        async with _crew(orders, 4) as crew:
            faults = [crew.kill_one] * 10 + [server.restart] * 3
            await crew.run(random.sample(faults, len(faults)), 5_000)
            notes = read_notes(ledger)
            await _check(queue, crew, notes, 5_000)
        assert len(crew.killed) == 10
        assert sum(note.event == "cancelled" for note in notes) >= 1_000
    assert time.monotonic() - start < 90
