"""A loop that is kept from running: who does it is told while it lasts."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from data_fetcher_core.queue.standstill import watched
from data_fetcher_core.testing import ManualClock
from tests.fault_support import open_run
from tests.harness import as_time_passes, client_of
from tests.waiting import until

TTL = 0.9
LONG = 1.5 * TTL
# Where nothing is to be told: a machine with much to do may keep a loop from running for a moment.
UNHURRIED = 3.0


def block(seconds: float) -> None:
    time.sleep(seconds)


def until_told(caplog: pytest.LogCaptureFixture, warnings: int = 1) -> None:
    """Block for as long as it takes, but not for ever."""
    deadline = time.monotonic() + 10 * TTL
    while len(told(caplog)) < warnings and time.monotonic() < deadline:
        block(0.01)


async def in_a_task(name: str, caplog: pytest.LogCaptureFixture, warnings: int = 1) -> None:
    """It blocks the loop until it is told, and for long enough to be told again."""

    async def handler() -> None:
        until_told(caplog, warnings)
        block(LONG)

    await asyncio.get_running_loop().create_task(handler(), name=name)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def watching() -> int:
    return sum(thread.name == "loop watch" for thread in threading.enumerate())


async def test_who_blocks_the_loop_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with watched(asyncio.get_running_loop(), TTL):
        await in_a_task("parse the catalogue", caplog)
        await asyncio.sleep(0)
        (warning,) = told(caplog)
        assert "the task 'parse the catalogue' blocks it" in warning
        assert "in until_told" in warning
        assert "in handler" in warning
        await in_a_task("another", caplog, 2)
        assert len(told(caplog)) == 2


async def test_it_is_told_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    with watched(asyncio.get_running_loop(), TTL):
        asyncio.get_running_loop().call_soon(until_told, caplog)
        await asyncio.sleep(0.01)
        (warning,) = told(caplog)
    assert "a callback blocks it" in warning
    assert "in until_told" in warning


async def test_a_loop_that_runs_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    with watched(asyncio.get_running_loop(), UNHURRIED):
        await asyncio.sleep(UNHURRIED)
    assert told(caplog) == []


def test_a_loop_that_is_not_run_is_not_blocked(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()

    async def enter() -> None:
        watch.__enter__()

    watch = watched(loop, TTL)
    loop.run_until_complete(enter())
    block(LONG)
    assert watching() == 1
    loop.close()
    deadline = time.monotonic() + 10
    while watching() and time.monotonic() < deadline:
        block(0.01)
    assert (watching(), told(caplog)) == (0, [])


async def test_without_a_thread_to_spare_the_heart_beats_all_the_same(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    async with open_run("memory://", clock=clock, lease_ttl=TTL) as queue:
        await queue.enqueue(["one"])
        (lease,) = await queue.lease()
        client = await client_of(queue)
        heard_at = client.heard_at

        async def has_beaten() -> bool:
            return bool(client.heard_at > heard_at)

        await as_time_passes(clock, has_beaten, step=TTL / 6)
        await lease.complete()


STOPPED = f"""
import asyncio
from data_fetcher_core.queue.standstill import watched

async def main():
    with watched(asyncio.get_running_loop(), {UNHURRIED}):
        print("ready", flush=True)
        await asyncio.sleep({1.5 * UNHURRIED})

asyncio.run(main())
"""


def test_a_process_that_was_stopped_blames_nobody() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    os.kill(child.pid, signal.SIGSTOP)
    block(UNHURRIED)
    os.kill(child.pid, signal.SIGCONT)
    assert child.communicate(timeout=30) == ("", "")


async def test_a_queue_watches_while_its_heart_beats(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_run("memory://", clock=clock, lease_ttl=TTL) as queue:
        assert watching() == 0
        await queue.enqueue(["one"])
        (lease,) = await queue.lease()
        await until(lambda: watching() == 1)
        await in_a_task("load", caplog)
        await lease.complete()
    await until(lambda: watching() == 0)
    (warning,) = told(caplog)
    assert "'load' blocks it. After 0.9 s its leases may be taken by others" in warning
