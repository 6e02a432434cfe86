"""Many clients whose server comes back: they do not all come at once."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import pytest
import redis

from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.queue.insisting import _pauses
from tests.conftest import StartRedis
from tests.evidence import Evidence
from tests.fault_support import bounded, open_run
from tests.harness import background
from tests.servers import RedisServer
from tests.waiting import until

__all__ = ["bounded"]

CLIENTS = 500
OUTAGE = 2.0
# The longest pause between two knocks of a client that finds nobody.
PAUSE = 0.5
SPAN = 0.1
SLACK = 3


# --- by its numbers ------------------------------------------------------------------------------


def test_pauses_are_spread_over_all_of_their_time(shows: Evidence) -> None:
    """After a few attempts each is anywhere between nothing and half a second."""
    later = [next(itertools.islice(_pauses(), 9, None)) for _ in range(10_000)]
    tenths = Counter(int(pause * 20) for pause in later)
    shows("F53", "share of pauses in the fullest tenth", max(tenths.values()) / 1e4, at_most=0.12)
    shows("F53", "share of pauses in the emptiest tenth", min(tenths.values()) / 1e4, at_least=0.08)
    shows("F53", "longest pause", max(later), at_most=0.5, unit="s")


def test_a_return_brings_no_more_connections_than_the_absence(shows: Evidence) -> None:
    """What 500 clients do that are told no at once, and that find the server back after 5 s.

    By their numbers: in one process of 500 each waits for the others' turn, and that alone
    would spread them.
    """
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


# --- for real ------------------------------------------------------------------------------------
#
# A client that is well keeps its connection, so the steady rate of new ones is none at all. What
# a return is compared with is what the same clients do without one: when they come for the first
# time, all together, to a server that is there.


class Sample(NamedTuple):
    """What a server says of itself: connections and seconds of a processor since it started."""

    instant: float
    connections: int
    seconds: float


class Course(NamedTuple):
    """From one sample to another, and all between them."""

    samples: Sequence[Sample]

    @property
    def connections(self) -> int:
        return self.samples[-1].connections - self.samples[0].connections

    @property
    def fullest(self) -> float:
        """Connections in a tenth of a second, at the most."""
        pairs = itertools.pairwise(self.samples)
        return max(
            SPAN * (b.connections - a.connections) / (b.instant - a.instant) for a, b in pairs
        )

    @property
    def of_a_core(self) -> float:
        first, last = self.samples[0], self.samples[-1]
        return (last.seconds - first.seconds) / (last.instant - first.instant)


def _rate(before: Sample, after: Sample) -> float:
    """Sampled a little late, now and then: connections in a span as long as it should be."""
    new = after.connections - before.connections
    return SPAN * new / (after.instant - before.instant)


class Watch:
    """Samples of a server, taken all the time but while it is away."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    async def course(self, since: float) -> Course:
        """From the last sample before that instant to the first that is taken now."""
        now = time.monotonic()
        await until(lambda: self.samples[-1].instant > now)
        started = max(n for n, one in enumerate(self.samples) if one.instant <= since)
        return Course(self.samples[started:])

    def look(self, server: RedisServer, over: threading.Event) -> None:
        with server.client() as client:
            while not over.wait(SPAN):
                with suppress(redis.RedisError):
                    self.samples.append(_sample(client))

    def begin_anew(self) -> None:
        """A server that is about to start has done nothing yet."""
        self.samples.append(Sample(time.monotonic(), 0, 0.0))


def _sample(client: Any) -> Sample:
    said = client.info()
    seconds = float(said["used_cpu_user"] + said["used_cpu_sys"])
    return Sample(time.monotonic(), int(said["total_connections_received"]), seconds)


@contextmanager
def _watched(server: RedisServer) -> Iterator[Watch]:
    """In a thread, which the loop that 500 clients share does not keep waiting for long."""
    watch, over = Watch(), threading.Event()
    thread = threading.Thread(target=watch.look, args=(server, over))
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
async def test_five_hundred_clients_come_back(start_redis: StartRedis, shows: Evidence) -> None:
    # What it has written outlives its process. With a disk to wait for, it would now and then keep
    # those who come waiting for so long that more come than it keeps in mind.
    server = start_redis(appendonly="yes", appendfsync="no", maxclients="4000")
    async with AsyncExitStack() as stack:
        watch = stack.enter_context(_watched(server))
        await until(lambda: len(watch.samples) > 0)
        came = time.monotonic()
        opening = (open_run(server.url, op_timeout=40.0) for _ in range(CLIENTS))
        queues = await asyncio.gather(*map(stack.enter_async_context, opening))
        first, well = await watch.course(came), time.monotonic()
        await _send_all(queues)
        steady = await watch.course(well)
        await asyncio.to_thread(server.kill)
        async with background(_send_all(queues)) as sending:
            await asyncio.sleep(OUTAGE)
            watch.begin_anew()
            returns = time.monotonic()
            await asyncio.to_thread(server.start)
            await sending
        took = time.monotonic() - returns
        back = await watch.course(returns)
        assert (await queues[0].stats()).enqueued == 2 * CLIENTS
    shows("F53", "all 500 served after", took, at_most=20.0, unit="s")
    _show(shows, first, steady, back)


async def _send_all(queues: Sequence[KVStoreQueue]) -> None:
    await asyncio.gather(*(queue.enqueue([n]) for n, queue in enumerate(queues)))


def _show(shows: Evidence, first: Course, steady: Course, back: Course) -> None:
    per_client, share = back.connections / CLIENTS, back.fullest / back.connections
    most = 2 * first.connections / CLIENTS
    shows("F53", "connections of 500 clients that come first", first.connections, at_least=CLIENTS)
    shows("F53", "new ones while all of them send", steady.connections, exactly=0)
    shows("F53", "connections of a client to a server that is back", per_client, at_most=most)
    shows("F53", "in the fullest 0.1 s of the first coming", first.fullest, at_least=1)
    shows("F53", "in that of the return", back.fullest, told=True)
    # They are spread over the longest pause, so that a tenth of a second has a fifth of them.
    shows("F53", "share of all in that of the return", share, at_most=SLACK * SPAN / PAUSE)
    shows("F53", "of a core used by Redis while all come back", back.of_a_core, at_most=0.8)
