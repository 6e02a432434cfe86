"""Who waits for lanes of its own leaves nothing behind that stays for ever."""

from __future__ import annotations

import asyncio

import pytest
from redis import Redis

from data_fetcher_core.clock import SYSTEM_CLOCK
from tests.conftest import MakeQueue
from tests.harness import accounted, items
from tests.servers import RedisServer
from tests.waiting import until

pytestmark = pytest.mark.parametrize("store_kind", ["redis"], indirect=True)

START = "{fetch:test}:"
A_MINUTE, A_DAY = 60, 24 * 3600


def that_stay(client: Redis) -> list[bytes]:
    """Keys that tell who waits, and whom nothing removes."""
    told = [*client.scan_iter(f"{START}wake:*"), f"{START}watched"]
    return [key for key in told if client.exists(key) and client.ttl(key) < 0]


async def test_lanes_that_somebody_asked_for_are_forgotten_in_time(
    make_queue: MakeQueue, redis_server: RedisServer
) -> None:
    queue = make_queue()
    for user in range(20):
        lane = f"user{user}"
        assert await queue.lease(lanes=[lane]) == []
        await queue.enqueue([user], lane=lane)
        (lease,) = await queue.lease(lanes=[lane])
        await lease.complete()
    with redis_server.client() as client:
        assert len(list(client.scan_iter(f"{START}wake:*"))) == 20
        assert that_stay(client) == []
        assert all(client.ttl(key) <= A_MINUTE for key in client.scan_iter(f"{START}wake:*"))
        assert client.ttl(f"{START}watched") <= A_DAY
    await accounted(queue)


async def test_asking_again_keeps_no_lane_longer(
    make_queue: MakeQueue, redis_server: RedisServer
) -> None:
    """Or those of a service with ever new users were kept for as long as it runs."""
    queue = make_queue()
    await queue.lease(lanes=["one"])
    with redis_server.client() as client:
        client.expire(f"{START}watched", 100)
        await queue.lease(lanes=["two"])
        assert client.ttl(f"{START}watched") <= 100
        assert client.smembers(f"{START}watched") == {b"one", b"two"}


async def test_who_waits_after_that_is_woken_as_ever(
    make_queue: MakeQueue, redis_server: RedisServer
) -> None:
    queue, other = make_queue(clock=SYSTEM_CLOCK), make_queue(clock=SYSTEM_CLOCK)
    await queue.lease(lanes=["lane"])
    with redis_server.client() as client:
        client.delete(f"{START}watched", f"{START}wake:lane")
        waiting = asyncio.ensure_future(queue.lease(wait=60.0, lanes=["lane"]))
        await until(lambda: int(client.info("clients")["blocked_clients"]) == 1)
    await other.enqueue(["x"], lane="lane")
    async with asyncio.timeout(3.0):
        assert items(await waiting) == ["x"]
