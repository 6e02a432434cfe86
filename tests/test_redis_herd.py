"""Many clients whose server comes back: they do not all come at once."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from data_fetcher_core.kv_store.redis import connection
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.queue.insisting import _pauses
from tests.conftest import StartRedis
from tests.evidence import Evidence
from tests.fault_support import bounded, open_run
from tests.harness import background
from tests.servers import RedisServer

__all__ = ["bounded"]

CLIENTS = 500
OUTAGE = 3.0
# Long enough that a busy machine's hiccups do not look like a herd.
SPAN = 0.5


def test_pauses_are_spread_over_all_of_their_time(shows: Evidence) -> None:
    """After a few attempts each is anywhere between nothing and a second."""
    later = [next(itertools.islice(_pauses(), 9, None)) for _ in range(10_000)]
    tenths = Counter(int(pause * 10) for pause in later)
    shows("F53", "share of pauses in the fullest tenth", max(tenths.values()) / 1e4, at_most=0.12)
    shows("F53", "share of pauses in the emptiest tenth", min(tenths.values()) / 1e4, at_least=0.08)
    shows("F53", "longest pause", max(later), at_most=1.0, unit="s")


class Turnstile:
    """Notes when a connection is tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.moments: list[float] = []
        connect = connection._TcpWire.connect

        async def noted(wire: Any) -> None:
            self.moments.append(time.monotonic())
            await connect(wire)

        monkeypatch.setattr(connection._TcpWire, "connect", noted)

    def busiest(self, start: float, end: float) -> int:
        """The most in any span of this time."""
        moments = [moment for moment in self.moments if start <= moment <= end]
        spans = Counter(int((moment - start) / SPAN) for moment in moments)
        return max(spans.values(), default=0)


def _cpu_seconds(server: RedisServer) -> float:
    with server.client() as client:
        used = client.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


@pytest.mark.slow
async def test_five_hundred_clients_come_back_one_by_one(
    start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch, shows: Evidence
) -> None:
    server = start_redis(appendonly="yes", appendfsync="always", maxclients="4000")
    turnstile = Turnstile(monkeypatch)
    async with AsyncExitStack() as stack:
        queues = [
            await stack.enter_async_context(open_run(server.url, op_timeout=40.0))
            for _ in range(CLIENTS)
        ]
        await asyncio.to_thread(server.kill)
        away = time.monotonic()
        async with background(_send_all(queues)) as sending:
            await asyncio.sleep(OUTAGE)
            returns = time.monotonic()
            await asyncio.to_thread(server.start)
            await sending
            await asyncio.sleep(1.0)
        took = time.monotonic() - returns
        used = _cpu_seconds(server) / took
        assert (await queues[0].stats()).enqueued == CLIENTS
    steady = turnstile.busiest(away + OUTAGE / 2, returns)
    peak = turnstile.busiest(returns, returns + took)
    shows("F53", "connections tried in half a second, server away", steady, at_least=100)
    shows("F53", "connections in the busiest half second of its return", peak, at_most=2 * steady)
    shows("F53", "of a core used by Redis while all come back", used, at_most=0.8)
    shows("F53", "all 500 served after", took, at_most=20.0, unit="s")


async def _send_all(queues: list[KVStoreQueue]) -> None:
    await asyncio.gather(*(queue.enqueue([n]) for n, queue in enumerate(queues)))
