"""Clocks that step, differ or stand still, and delays of every size.

The server of the last tests runs under libfaketime. The others have a clock that the store is
handed.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.core import Entry
from data_fetcher_core.errors import ValidationError
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.testing import ManualClock
from tests.conftest import MakeQueue, StartRedis
from tests.demands import NO_FAKE_TIME, leave_out
from tests.evidence import Evidence
from tests.fault_support import Ledger, bounded, open_run
from tests.harness import accounted, asleep, crash, items, letters, places, silence
from tests.servers import Binary, RedisServer, find_binaries

__all__ = ["bounded"]

HOUR = 3600.0
YEAR = 365 * 86_400.0
STEPS = {
    "a minute ahead": [60.0],
    "an hour back": [-HOUR],
    "to and fro": [60.0, -HOUR, 7_200.0, -HOUR, 1e-6, -60.0, 86_400.0, -86_400.0],
}


# --- the store's clock is set --------------------------------------------------------------------


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
async def test_a_step_of_the_clock_costs_no_lease(
    make_queue: MakeQueue, clock: ManualClock, shows: Evidence, steps: list[float]
) -> None:
    """Hearts are numbers. Who is silent is found by our own clock, and nobody else is."""
    holder, other, dying = make_queue(), make_queue(), make_queue()
    await holder.enqueue(["held", "orphan"])
    (held,) = await holder.lease()
    await dying.lease()
    await crash(dying)
    await other.sweep()
    for step in steps:
        clock.jump(step)
        await holder.sweep()
        await other.sweep()
    shows("F26", "leases taken by steps", 2 - (await places(other)).get("leased", 0), exactly=0)
    for _ in range(6):
        await holder.sweep()
        await silence(other, clock, 5.0)
    shows("F26", "leases of the dead stuck", (await places(other))["leased"] - 1, exactly=0)
    assert await places(other) == {"leased": 1, "ready": 1}
    await held.complete()
    (orphan,) = await other.lease()
    assert (orphan.item, orphan.deaths) == ("orphan", 1)
    await orphan.complete()
    await accounted(other)


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
async def test_a_delay_follows_the_clock_of_the_store(
    make_queue: MakeQueue, clock: ManualClock, steps: list[float]
) -> None:
    queue = make_queue()
    due = clock.store_now() + 30.0
    await queue.enqueue(["later"], delay=30.0)
    await queue.shut("lane", 30.0)
    await queue.enqueue(["shut"], lane="lane")
    found: list[str] = []
    for step in [*steps, HOUR * 2]:
        clock.jump(step)
        leases = await queue.lease(2)
        found += items(leases)
        assert bool(found) == (due <= clock.store_now() or bool(found[len(leases) :]))
        for lease in leases:
            await lease.complete()
    assert sorted(found) == ["later", "shut"]
    await accounted(queue)


# --- the clocks of the processes differ ----------------------------------------------------------


@contextmanager
def _wall_clock_off_by(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[None]:
    real = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + seconds)
        yield


class Trace:
    """Two workers do the same things in the same order, by dice with a seed."""

    def __init__(
        self,
        workers: Sequence[KVStoreQueue],
        wrong: Sequence[Callable[[], AbstractContextManager[None]]],
    ) -> None:
        self._workers = list(zip(workers, wrong, strict=True))
        self._dice = random.Random(7)
        self._steps: list[Any] = []

    async def run(self) -> str:
        for number in range(120):
            worker, wrong = self._dice.choice(self._workers)
            with wrong():
                await self._step(worker, number)
        worker = self._workers[0][0]
        self._steps.append(await accounted(worker))
        self._steps += [(d.id, d.reason, d.attempts) for d in await letters(worker)]
        return blake2b(repr(self._steps).encode()).hexdigest()

    async def _step(self, worker: KVStoreQueue, number: int) -> None:
        lane = f"lane{self._dice.randrange(3)}"
        if self._dice.random() < 0.4:
            delay = self._dice.choice([0.0, 0.0, 500.0])
            expiry = self._dice.choice([None, 1_000.0])
            entry = Entry(number, id=f"{number}", key=f"{number % 50}", lane=lane)
            added = await worker.enqueue([entry], delay=delay, expires_in=expiry)
            self._steps.append((int(added), added.ids))
            return
        for lease in await worker.lease(self._dice.randrange(1, 4)):
            self._steps.append((lease.id, lease.lane, lease.attempts, lease.deaths))
            await self._settle(lease)
        self._steps.append(await worker.size())

    async def _settle(self, lease: Any) -> None:
        move = self._dice.randrange(4)
        if move == 0:
            await lease.release(delay=self._dice.choice([0.0, 500.0]), error="again")
        elif move == 1:
            await lease.bury("no good")
        else:
            child = Entry("child", id=f"{lease.id}+", lane=lease.lane)
            await lease.complete([child] if move == 2 else [])


async def test_the_clocks_of_the_workers_change_nothing(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, shows: Evidence
) -> None:
    traces = []
    for run, skews in enumerate([(0.0, 0.0), (HOUR, -HOUR), (-HOUR, HOUR), (10 * YEAR, 0.0)]):
        redis_server.flush()
        wrong = [partial(_wall_clock_off_by, monkeypatch, skew) for skew in skews]
        url, run_id = redis_server.url, f"run{run}"
        async with open_run(url, run_id) as one, open_run(url, run_id) as other:
            traces.append(await Trace([one, other], wrong).run())
    shows("F27", "runs, each with other clocks", len(traces), at_least=4)
    shows("F27", "different traces", len(set(traces)), exactly=1)


async def test_a_wrong_clock_does_not_date_a_failure(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told of a dead letter is told by one clock, that of the store."""
    async with open_run(redis_url) as queue:
        await queue.enqueue(["bad"])
        with _wall_clock_off_by(monkeypatch, HOUR):
            for lease in await queue.lease():
                await lease.bury(error="no good")
        (letter,) = await letters(queue)
        assert abs(letter.failures[-1].at - letter.buried_at) < 60.0


# --- delays of every size ------------------------------------------------------------------------

IMPOSSIBLE: list[Any] = [-1, -1e-9, float("nan"), float("inf"), -float("inf"), 2**63, 1e18]
IMPOSSIBLE += [True, "5", b"5", [], frozenset(), 1j]


@pytest.mark.parametrize("delay", IMPOSSIBLE, ids=repr)
async def test_a_delay_that_cannot_be_changes_nothing(
    queue: KVStoreQueue, clock: ManualClock, delay: Any
) -> None:
    await queue.enqueue(["held"])
    (held,) = await queue.lease()
    for act in (
        lambda: queue.enqueue(["new"], delay=delay),
        lambda: queue.enqueue([Entry("fine"), Entry("new", delay=delay)]),
        lambda: queue.enqueue([Entry("new", expires_in=delay)]),
        lambda: queue.shut("", delay),
        lambda: queue.pace("", interval=delay),
        lambda: queue.purge_dead(delay),
        lambda: held.release(delay=delay),
        lambda: held.complete([Entry("child", delay=delay)]),
    ):
        with pytest.raises(ValidationError):
            await act()
    if delay != float("inf"):
        with pytest.raises(ValidationError):
            await queue.lease(wait=delay)
    await held.complete()
    assert (await accounted(queue)).enqueued == 1


@pytest.mark.parametrize("delay", [0.0, 1e-6, 1e-3, 1.0, 0.1 + 0.2, HOUR, YEAR * 10, YEAR * 100])
async def test_a_delay_is_never_early_and_at_most_a_tick_late(
    queue: KVStoreQueue, clock: ManualClock, delay: float
) -> None:
    await queue.enqueue(["new"], delay=delay)
    await queue.enqueue(["again"], lane="released")
    (lease,) = await queue.lease(lanes=["released"])
    await lease.release(delay=delay)
    if delay:
        clock.jump(delay - 1e-6 if delay > 1e-6 else 0.0)
        assert await queue.lease(2) == []
        clock.jump(1e-6)
    # A duration is rounded up to whole microseconds, never down.
    clock.jump(1e-6)
    assert sorted(items(await queue.lease(2))) == ["again", "new"]


async def test_who_waits_is_served_as_soon_as_it_is_due(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    await queue.enqueue(["soon"], delay=0.4)
    waiting = asyncio.ensure_future(queue.lease(wait=60.0))
    await asleep(queue)
    for _ in range(3):
        clock.advance(0.1)
        await asyncio.wait([waiting], timeout=0.02)
        assert not waiting.done()
    clock.advance(0.1)
    async with asyncio.timeout(10):
        assert items(await waiting) == ["soon"]


# --- a server whose clock is really set ----------------------------------------------------------

_LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


def _can_be_fooled(binary: Binary) -> bool:
    """One with an allocator of its own hangs under the library."""
    said = subprocess.run([binary.path, "--version"], capture_output=True, text=True, timeout=10)
    return "malloc=libc" in said.stdout


_GULLIBLE = [binary for binary in find_binaries() if _can_be_fooled(binary)] if _LIBRARIES else []


class ClockOfTheServer(ManualClock):
    """The store goes by the clock of its server; only what we measure ourselves is by this one."""

    def store_now(self) -> float | None:  # type: ignore[override]
        return None


class Timepiece:
    """Sets the clock of the servers that were started under it."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "offset"
        self.set(0.0)

    def set(self, offset: float) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{offset:+f}s\n")
        fresh.replace(self._file)

    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(_LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


@pytest.fixture
def stepping(
    start_redis: StartRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[RedisServer, Timepiece]:
    if not _GULLIBLE:
        leave_out(NO_FAKE_TIME)
    timepiece = Timepiece(tmp_path)
    with monkeypatch.context() as patch:
        for name, value in timepiece.environment().items():
            patch.setenv(name, value)
        server = start_redis(_GULLIBLE[0])
    timepiece.set(HOUR)
    with server.client() as client:
        assert abs(client.time()[0] - time.time() - HOUR) < 10, "the clock was not set"
    timepiece.set(0.0)
    return server, timepiece


async def test_a_server_whose_clock_steps_takes_no_lease(
    stepping: tuple[RedisServer, Timepiece], shows: Evidence
) -> None:
    """Three leases long by our own clock, which is none of the machine's: a busy one must not be
    taken for a dead holder."""
    (server, timepiece), ledger, own = stepping, Ledger(), ClockOfTheServer()
    url, lease_ttl = server.url, 30.0
    async with (
        open_run(url, clock=own, lease_ttl=lease_ttl) as holder,
        open_run(url, clock=own, lease_ttl=lease_ttl) as other,
    ):
        await ledger.enqueue(holder, ["held"])
        (held,) = await holder.lease()
        offsets = itertools.cycle([60.0, -HOUR, 86_400.0, -60.0, 0.0])
        steps, taken = 0, list[Any]()
        while own.monotonic() < 3 * lease_ttl:
            timepiece.set(next(offsets))
            steps += 1
            await holder.sweep()
            await other.sweep()
            taken += await other.lease()
            own.advance(lease_ttl / 12)
        shows("F26", "steps of a real server's clock", steps, at_least=5)
        shows("F26", "leases taken by steps", len(taken), exactly=0)
        await ledger.complete(held)
        await ledger.balance(other)


async def test_a_server_whose_clock_steps_keeps_delays_by_it(
    stepping: tuple[RedisServer, Timepiece], shows: Evidence
) -> None:
    (server, timepiece), ledger = stepping, Ledger()
    async with open_run(server.url) as queue:
        await ledger.enqueue(queue, ["in a while"], delay=30.0)
        assert await queue.lease() == []
        timepiece.set(60.0)
        (lease,) = await queue.lease()
        await lease.release(delay=0.2)
        timepiece.set(-HOUR)
        # Not early by more than a second of the server's own time.
        early = await queue.lease(wait=0.5)
        shows("F26", "delays that ended too early", len(early), exactly=0)
        timepiece.set(61.0)
        assert items(await queue.lease(wait=5.0)) == ["in a while"]
