"""A network that is slow, or comes and goes: nothing is lost, nothing overtakes, nobody is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest

from data_fetcher_core.queue import KVStoreQueue
from tests.chaos.timing import percentile
from tests.evidence import Evidence
from tests.fault_support import Ledger, bounded, calmest, open_run
from tests.harness import background
from tests.redis_proxy import RedisProxy, delay

__all__ = ["bounded"]

SLACK = 3
_LATENCY = 0.03
_MARGIN = 0.02
# One for each kind of call, and one to wait on.
_USUAL = 4


async def _cycle(queue: KVStoreQueue, ledger: Ledger, name: str) -> list[float]:
    """Bring one request, take one, settle it; how long each took."""
    took = [await _timed(ledger.enqueue(queue, [name]))]
    start = time.monotonic()
    (lease,) = await queue.lease(wait=5.0)
    took.append(time.monotonic() - start)
    took.append(await _timed(ledger.complete(lease)))
    return took


async def _timed(call: Awaitable[object]) -> float:
    start = time.monotonic()
    await call
    return time.monotonic() - start


async def _took(proxy: RedisProxy, cycles: int, spoil: str, run_id: str = "faults") -> list[float]:
    """Of every call while the network is spoilt; the account is closed afterwards."""
    ledger = Ledger()
    async with open_run(proxy.url, run_id) as queue:
        await _cycle(queue, ledger, "the first, with connections and scripts to come")
        _spoil(proxy, spoil)
        took = [
            seconds
            for number in range(cycles)
            for seconds in await _cycle(queue, ledger, f"{number}")
        ]
        proxy.heal()
        await ledger.balance(queue)
    return took


def _spoil(proxy: RedisProxy, how: str) -> None:
    if how == "latency":
        proxy.fault(delay(request=_LATENCY / 2, reply=_LATENCY / 2), times=float("inf"))
    elif how == "one byte at a time":
        proxy.slice_size, proxy.slice_pause = 1, 0.0
    else:
        proxy.slice_size, proxy.slice_pause = 200, 0.02


async def test_latency_is_all_that_is_added(redis_proxy: RedisProxy, shows: Evidence) -> None:
    connections: list[int] = []

    async def p99_beyond() -> float:
        accepted = redis_proxy.accepted
        took = await _took(redis_proxy, 40, "latency", f"round{len(connections)}")
        connections.append(redis_proxy.accepted - accepted)
        return (percentile(took, 99) - _LATENCY) * 1e3

    added, bound = await calmest(p99_beyond, _MARGIN * 1e3), _MARGIN * SLACK * 1e3
    shows("F15", "p99 beyond the latency", round(added, 1), at_most=bound, unit="ms")
    given_up = max(0, max(connections) - _USUAL)
    shows("F15", "connections given up, latency", given_up, exactly=0)


@pytest.mark.parametrize("spoil", ["one byte at a time", "10 KB a second"])
async def test_a_trickle_is_no_silence(
    redis_proxy: RedisProxy, shows: Evidence, spoil: str
) -> None:
    accepted = redis_proxy.accepted
    took = await _took(redis_proxy, 12, spoil)
    shows("F15", f"slowest call, {spoil}", round(max(took), 2), at_most=1.0 * SLACK, unit="s")
    connections = redis_proxy.accepted - accepted
    shows("F15", f"connections given up, {spoil}", max(0, connections - _USUAL), exactly=0)


# --- here and gone -------------------------------------------------------------------------------

_DOWN, _UP = 0.2, 0.3
_LANES, _TOTAL = 3, 240


@asynccontextmanager
async def _flapping(proxy: RedisProxy) -> AsyncIterator[list[float]]:
    downs: list[float] = []

    async def flap() -> None:
        while True:
            await proxy.down()
            downs.append(time.monotonic())
            await asyncio.sleep(_DOWN)
            await proxy.up()
            await asyncio.sleep(_UP)

    async with background(flap()):
        yield downs
    await proxy.down()
    await proxy.up()


async def test_nothing_overtakes_in_a_lane_while_the_network_flaps(
    redis_proxy: RedisProxy, shows: Evidence
) -> None:
    ledger = Ledger()
    order: list[int] = []
    async with open_run(redis_proxy.url) as queue:
        async with _flapping(redis_proxy) as downs, asyncio.TaskGroup() as group:
            group.create_task(_bring(queue, ledger))
            group.create_task(_take(queue, ledger, order))
        await ledger.balance(queue)
    overtaken = sum(
        order_in_lane != sorted(order_in_lane)
        for order_in_lane in ([n for n in order if n % _LANES == lane] for lane in range(_LANES))
    )
    shows("F17", "times the network went down under one queue", len(downs), at_least=5)
    shows("F17", "lanes in which something overtook", overtaken, exactly=0)
    shows("F17", "requests taken, each once", len(order), exactly=_TOTAL)


async def _bring(queue: KVStoreQueue, ledger: Ledger) -> None:
    for number in range(_TOTAL):
        await ledger.enqueue(queue, [f"{number}"], lane=f"{number % _LANES}")
        await asyncio.sleep(0.01)


async def _take(queue: KVStoreQueue, ledger: Ledger, order: list[int]) -> None:
    while len(order) < _TOTAL:
        for lease in await queue.lease(wait=10.0):
            order.append(int(lease.item))
            await ledger.complete(lease)
