"""A network that is slow, uneven, cut into bytes, narrow, or comes and goes costs only time."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable
from typing import Any

import pytest

from data_fetcher_core.queue import KVStoreQueue
from tests.evidence import Evidence
from tests.fault_support import Ledger, bounded, calmest, open_run
from tests.harness import background
from tests.redis_proxy import Exchange, RedisProxy, delay
from tests.waiting import until

__all__ = ["bounded"]

SLACK = 3
ALLOWANCE = 0.020


class Stopwatch:
    """How long each call took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def time(self, call: Awaitable[Any]) -> Any:
        start = time.monotonic()
        answer = await call
        self.seconds.append(time.monotonic() - start)
        return answer

    @property
    def p99(self) -> float:
        return sorted(self.seconds)[int(len(self.seconds) * 0.99)]


async def _p99(queue: KVStoreQueue, ledger: Ledger) -> float:
    return (await _work(queue, ledger, 40)).p99


async def _work(queue: KVStoreQueue, ledger: Ledger, requests: int) -> Stopwatch:
    """One after the other: enqueue, lease, complete. Nothing times out, or it is raised here."""
    watch, known = Stopwatch(), len(ledger.sent)
    for number in range(known, known + requests):
        await watch.time(ledger.enqueue(queue, [f"{number}"]))
        (lease,) = await watch.time(queue.lease())
        await watch.time(ledger.complete(lease))
    return watch


def _jitter(most: float) -> Any:
    dice = random.Random(15)

    async def act(exchange: Exchange) -> None:
        await delay(request=dice.uniform(0, most / 2), reply=dice.uniform(0, most / 2))(exchange)

    return act


@pytest.mark.parametrize("how", ["latency", "jitter"])
async def test_latency_costs_itself_and_little_more(
    redis_proxy: RedisProxy, shows: Evidence, how: str
) -> None:
    injected, ledger = 0.020, Ledger()
    action = delay(request=injected / 2, reply=injected / 2) if how == "latency" else None
    async with open_run(redis_proxy.url) as queue:
        await queue.size()
        redis_proxy.fault(action or _jitter(injected), times=float("inf"))
        p99 = await calmest(lambda: _p99(queue, ledger), injected + ALLOWANCE)
        redis_proxy.heal()
        most = (injected + ALLOWANCE) * SLACK
        shows("F15", f"p99 of a call with {how} of 20 ms", p99, at_most=most, unit="s")
        _show_connections(shows, redis_proxy)
        (await ledger.account(queue)).show(shows, "F15")


@pytest.mark.parametrize(("slice_size", "pause"), [(1, 0.0), (100, 0.01)], ids=["bytes", "10 KB/s"])
async def test_slices_and_a_narrow_line_only_take_time(
    redis_proxy: RedisProxy, shows: Evidence, slice_size: int, pause: float
) -> None:
    ledger = Ledger()
    async with open_run(redis_proxy.url) as queue:
        await queue.size()
        redis_proxy.slice_size, redis_proxy.slice_pause = slice_size, pause
        await _work(queue, ledger, 8)
        redis_proxy.heal()
        _show_connections(shows, redis_proxy)
        (await ledger.account(queue)).show(shows, "F15")


def _show_connections(shows: Evidence, proxy: RedisProxy) -> None:
    """Whatever times out gives its connection up, and the next needs a new one."""
    shows("F15", "connections made: no time-outs", proxy.accepted, at_most=4)


# --- up and down ---------------------------------------------------------------------------------


async def _flap(proxy: RedisProxy, times: int) -> int:
    """How often somebody was cut off. It is up until somebody is there: a client that was cut off
    pauses before it comes again, for longer on a busy machine."""
    connected = 0
    for _ in range(times):
        await asyncio.sleep(0.3)
        await until(lambda: proxy.open_connections > 0)
        connected += 1
        await proxy.down()
        await asyncio.sleep(0.2)
        await proxy.up()
    return connected


async def _produce(queue: KVStoreQueue, ledger: Ledger, flapping: asyncio.Task[Any]) -> None:
    number = 0
    while not flapping.done():
        for lane in "ab":
            await ledger.enqueue(queue, [f"{lane}{number:06}"], lane=lane)
        number += 1


async def _consume(queue: KVStoreQueue, ledger: Ledger, done: list[str]) -> None:
    async for lease in queue.leases():
        await ledger.complete(lease)
        done.append(lease.item)


async def test_a_network_that_comes_and_goes_keeps_the_order(
    redis_proxy: RedisProxy, shows: Evidence
) -> None:
    ledger, done, flaps = Ledger(), list[str](), 6
    async with open_run(redis_proxy.url) as producer, open_run(redis_proxy.url) as consumer:
        async with background(_consume(consumer, ledger, done)):
            async with background(_flap(redis_proxy, flaps)) as flapping:
                await _produce(producer, ledger, flapping)
                cut_off = await flapping
            async with asyncio.timeout(30):
                while len(done) < len(ledger.sent):  # noqa: ASYNC110 - looked at from outside
                    await asyncio.sleep(0.01)
        lanes = [[name for name in done if name[0] == lane] for lane in "ab"]
        late = sum(a > b for lane in lanes for a, b in itertools.pairwise(lane))
        shows("F17", "times that it went down under load", cut_off, at_least=flaps - 1)
        shows("F17", "requests meanwhile", len(done), at_least=10)
        shows("F17", "out of order within a lane", late, exactly=0)
        (await ledger.account(producer)).show(shows, "F17")
