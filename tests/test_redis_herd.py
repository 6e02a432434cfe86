"""Many clients whose server comes back: they do not all come at once."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack

import pytest

from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.queue.insisting import _pauses
from tests.conftest import StartRedis
from tests.evidence import Evidence
from tests.fault_support import bounded, open_run
from tests.harness import background
from tests.servers import RedisServer

__all__ = ["bounded"]

CLIENTS = 500
OUTAGE = 2.0


def test_pauses_are_spread_over_all_of_their_time(shows: Evidence) -> None:
    """After a few attempts each is anywhere between nothing and half a second."""
    later = [next(itertools.islice(_pauses(), 9, None)) for _ in range(10_000)]
    tenths = Counter(int(pause * 20) for pause in later)
    shows("F53", "share of pauses in the fullest tenth", max(tenths.values()) / 1e4, at_most=0.12)
    shows("F53", "share of pauses in the emptiest tenth", min(tenths.values()) / 1e4, at_least=0.08)
    shows("F53", "longest pause", max(later), at_most=0.5, unit="s")


def test_a_return_brings_no_more_connections_than_the_absence(shows: Evidence) -> None:
    """What 500 clients do that are told no at once, and that find the server back after 5 s."""
    back, span = 5.0, 0.1
    tries = [moment for _ in range(CLIENTS) for moment in _tries(back)]
    spans = Counter(int(moment / span) for moment in tries)
    away = [spans[n] for n in range(int(back / span) - 20, int(back / span))]
    returned = [spans[n] for n in range(int(back / span), int(back / span) + 10)]
    steady = sum(away) / len(away)
    shows("F53", "tries of 500 clients in 0.1 s, server away", steady, at_most=300)
    shows("F53", "tries in the busiest 0.1 s of its return", max(returned), at_most=2 * steady)
    shows("F53", "last of them comes after", max(tries) - back, at_most=0.5, unit="s")


def _tries(back: float) -> Iterator[float]:
    """Until the first that succeeds."""
    now = 0.0
    for pause in _pauses():
        yield now
        if now >= back:
            return
        now += pause


def _used(server: RedisServer) -> tuple[float, int]:
    """Seconds of a processor, and connections, since it was started."""
    with server.client() as client:
        said = client.info()
    seconds = float(said["used_cpu_user"] + said["used_cpu_sys"])
    return seconds, int(said["total_connections_received"])


@pytest.mark.slow
async def test_five_hundred_clients_come_back(start_redis: StartRedis, shows: Evidence) -> None:
    server = start_redis(appendonly="yes", appendfsync="always", maxclients="4000")
    async with AsyncExitStack() as stack:
        opening = (open_run(server.url, op_timeout=40.0) for _ in range(CLIENTS))
        queues = await asyncio.gather(*map(stack.enter_async_context, opening))
        await asyncio.to_thread(server.kill)
        async with background(_send_all(queues)) as sending:
            await asyncio.sleep(OUTAGE)
            returns = time.monotonic()
            await asyncio.to_thread(server.start)
            await sending
            await asyncio.sleep(1.0)
        took = time.monotonic() - returns
        seconds, connections = _used(server)
        assert (await queues[0].stats()).enqueued == CLIENTS
    shows("F53", "of a core used by Redis while all come back", seconds / took, at_most=0.8)
    # Each makes one, and this test looks in now and then.
    shows("F53", "connections of 500 clients to a server that is back", connections, at_most=600)
    shows("F53", "all 500 served after", took, at_most=20.0, unit="s")


async def _send_all(queues: Sequence[KVStoreQueue]) -> None:
    await asyncio.gather(*(queue.enqueue([n]) for n, queue in enumerate(queues)))
