"""A million in one call are steps of a thousand, and keep nobody else waiting."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.chaos.timing import percentile
from tests.conftest import StartRedis
from tests.evidence import Evidence
from tests.fault_support import bounded, open_run
from tests.harness import accounted, background, settled
from tests.servers import RedisServer
from tests.waiting import until

__all__ = ["bounded"]

SLACK = 3
STEP = 1_000
MILLION = 10**6
# All steps are alike: after so many of them it has been seen what a step does.
ENOUGH = 200 * STEP


class Reading:
    """A million items, and how many of them were read so far."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self) -> Iterator[int]:
        for self.read in range(1, MILLION + 1):
            yield self.read


@pytest.mark.slow
async def test_a_million_at_once_keep_nobody_waiting(
    start_redis: StartRedis, shows: Evidence
) -> None:
    """One call; it is given up when it has been seen how it goes."""
    server, items = start_redis(), Reading()
    async with open_run(server.url, op_timeout=30.0) as queue:
        with server.client() as client, _pinging(server) as waits:
            client.config_resetstat()
            async with background(queue.enqueue(items)):
                await until(lambda: items.read >= ENOUGH, within=60.0)
            scripts = int(client.info("commandstats")["cmdstat_evalsha"]["calls"])
        await settled(queue)
        taken = (await accounted(queue)).enqueued
    shows("F37", "of a million in one call, sent when it was given up", taken, at_least=ENOUGH // 2)
    shows("F37", "of these in a step, at most", taken / scripts, at_most=STEP)
    shows("F37", "taken in that are no whole step", taken % STEP, exactly=0)
    shows("F37", "read ahead of what was taken in", items.read - taken, at_most=3 * STEP)
    shows("F37", "times that somebody else asked meanwhile", len(waits), at_least=50)
    # A busy machine keeps one of hundreds waiting for longer; all at once would be many seconds.
    shows("F37", "p99 of these waits", percentile(waits, 99), at_most=0.1 * SLACK, unit="s")
    shows("F37", "longest wait of these", max(waits), at_most=2.0, unit="s")


@contextmanager
def _pinging(server: RedisServer) -> Iterator[list[float]]:
    """Another client asks all the time; how long it waited for each answer.

    In a process of its own: a thread would wait for the one that sends.
    """
    words = [sys.executable, "-c", _PING, str(server.port)]
    asker = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    waits: list[float] = []
    try:
        assert asker.stdout is not None
        asker.stdout.readline()
        yield waits
        said, _ = asker.communicate("over\n", timeout=10)
        waits += [float(word) for word in said.split()]
    finally:
        asker.kill()
        asker.wait()


_PING = """
import select, sys, time
import redis

client = redis.Redis(port=int(sys.argv[1]))
client.ping()
print("ready", flush=True)
waits = []
while not select.select([sys.stdin], [], [], 0.01)[0]:
    began = time.monotonic()
    client.ping()
    waits.append(time.monotonic() - began)
print(*waits)
"""
