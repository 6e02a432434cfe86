"""A replica takes the place of its master: what it had not heard is forgotten, and only that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable

import pytest

from data_fetcher_core.core import Entry
from data_fetcher_core.errors import LeaseLost, StoreLost, StoreUnavailable
from data_fetcher_core.events import Event, StepsForgotten
from data_fetcher_core.queue import KVStoreQueue, Lease
from tests.conftest import StartRedis
from tests.evidence import Evidence
from tests.fault_support import bounded, drain, open_run, results
from tests.harness import accounted, background, beat_twice, crash
from tests.redis_proxy import RedisProxy
from tests.servers import RedisServer, wait_for, wait_until_followed
from tests.steady_load import SteadyLoad

__all__ = ["bounded"]

SLACK = 3
OP_TIMEOUT = 6.0


class Pair:
    """A master, its replica, and the name by which clients know whichever is in office."""

    def __init__(self, master: RedisServer, replica: RedisServer, name: RedisProxy) -> None:
        self.master, self.replica, self.name = master, replica, name
        with replica.client() as client:
            client.replicaof("127.0.0.1", master.port)
        wait_until_followed(master)

    def cut(self) -> None:
        """From now on the replica hears nothing; the master does not mind."""
        wait_until_followed(self.master)
        self.replica.freeze()
        with self.master.client() as client:
            client.client_kill_filter(_type="replica")

    def promote(self) -> None:
        """The master dies, and the replica takes over with what it has."""
        self.master.kill()
        self.replica.thaw()
        self._take_over()

    def exchange(self) -> None:
        """In good order: the master refuses to write, the replica hears the rest, and follows."""
        with self.master.client() as client:
            client.replicaof("127.0.0.1", 1)
            heard_all = client.info("replication")["master_repl_offset"]

        def has_heard_all() -> bool:
            with self.replica.client() as client:
                return bool(client.info("replication")["slave_repl_offset"] >= heard_all)

        wait_for(has_heard_all, "the replica did not hear the rest")
        self._take_over()

    def _take_over(self) -> None:
        with self.replica.client() as client:
            client.replicaof("NO", "ONE")
        self.name.target_port = self.replica.port


@pytest.fixture
async def pair(start_redis: StartRedis) -> AsyncIterator[Pair]:
    master, replica = (start_redis(repl_diskless_sync_delay="0") for _ in range(2))
    async with RedisProxy(master.port) as name:
        yield await asyncio.to_thread(Pair, master, replica, name)


# --- writes that the replica never heard of ------------------------------------------------------


async def _is_lost(settling: Awaitable[object]) -> bool:
    try:
        await settling
    except LeaseLost:
        return True
    return False


async def _send(queue: KVStoreQueue, kind: str, count: int) -> set[str]:
    names = [f"{kind}{n}" for n in range(count)]
    await queue.enqueue([Entry(name, id=name, key=name) for name in names])
    return set(names)


async def test_what_the_replica_had_not_heard_is_forgotten_and_nothing_else(
    pair: Pair, shows: Evidence
) -> None:
    told: list[Event] = []
    async with open_run(pair.name.url, op_timeout=OP_TIMEOUT, subscriber=told.append) as queue:
        heard = await _send(queue, "heard", 30)
        held = await queue.lease(10)
        await asyncio.gather(*(lease.complete(result=lease.id) for lease in held[:3]))
        await queue.sweep()
        await asyncio.to_thread(pair.cut)

        unheard = await _send(queue, "unheard", 20)
        settled_in_vain = held[3:7]
        await asyncio.gather(*(lease.complete(result=lease.id) for lease in settled_in_vain))
        leased_in_vain = await queue.lease(5)

        await asyncio.to_thread(pair.promote)
        await queue.sweep()
        await accounted(queue)
        kept, lost = held[7:], [await _is_lost(lease.complete()) for lease in leased_in_vain]
        shows(
            "F6", "leases of the window that could still be settled", lost.count(False), exactly=0
        )
        await asyncio.gather(*(lease.complete(result=lease.id) for lease in kept))
        await beat_twice(queue)

        steps = [event.steps for event in told if isinstance(event, StepsForgotten)]
        shows("F6", "steps told as forgotten", sum(steps), exactly=3)
        again = await queue.lease(1_000)
        names = {lease.id for lease in again}
        shows("F6", "requests lost", len((heard | unheard) - names - _ids(held)), exactly=20)
        shows(
            "F6", "requests lost that the replica had", len(heard - names - _ids(held)), exactly=0
        )
        twice = names & _ids([*held, *leased_in_vain])
        expected = _ids([*settled_in_vain, *leased_in_vain])
        shows("F6", "delivered twice, settled or leased unheard", len(twice), exactly=9)
        assert twice == expected
        shows("F6", "tokens given twice", _reused([*held, *leased_in_vain, *again]), exactly=0)
        await asyncio.gather(*(lease.complete(result=lease.id) for lease in again))
        # A key is seen if and only if its request was accepted, by what the store remembers.
        shows(
            "F6", "lost requests taken in again", len(await _send(queue, "unheard", 20)), exactly=20
        )
        assert set(await drain(queue)) == unheard
        found = await results(queue)
        assert (len(found), set(found)) == (30, heard)
        await accounted(queue)


def _ids(leases: list[Lease]) -> set[str]:
    return {lease.id for lease in leases}


def _reused(leases: list[Lease]) -> int:
    return len(leases) - len({lease.token for lease in leases})


async def test_under_load_only_the_unheard_is_lost(pair: Pair, shows: Evidence) -> None:
    async with open_run(pair.name.url, op_timeout=OP_TIMEOUT) as queue:
        load = SteadyLoad(queue)
        async with background(load.run()) as running:
            await load.until_sent(200)
            cut = time.monotonic()
            await asyncio.to_thread(pair.cut)
            await load.until_completed(200)
            await asyncio.to_thread(pair.promote)
            promoted = time.monotonic()
            await load.until_completed(200)
            load.stop()
            await running
        await load.finish()
        account = await load.account()
    window, unheard = load.within(cut, promoted + 1.0), load.sent_within(cut, promoted)
    forgotten = len(account.forgotten)
    shows("F6", "under load: forgotten (or nothing was tried)", forgotten, at_least=100)
    shows("F6", "under load: lost of these", len(account.lost), told=True)
    shows("F6", "under load: forgotten that it had", len(account.forgotten - unheard), exactly=0)
    shows("F6", "under load: delivered twice", len(account.delivered_twice), told=True)
    shows("F6", "under load: twice for no reason", len(account.delivered_twice - window), exactly=0)
    shows("F6", "under load: requests nobody sent", len(account.appeared), exactly=0)
    shows("F6", "under load: tokens given twice", account.tokens_reused, exactly=0)


async def test_a_replica_that_had_heard_nothing_is_not_a_finished_run(
    pair: Pair, shows: Evidence
) -> None:
    await asyncio.to_thread(pair.cut)
    async with open_run(pair.name.url, op_timeout=OP_TIMEOUT) as queue:
        await queue.enqueue(["one", "two"])
        (lease,) = await queue.lease()
        await asyncio.to_thread(pair.promote)
        told = []
        for verb in (lease.complete, lambda: queue.enqueue(["3"]), queue.lease, queue.stats):
            with pytest.raises(StoreLost) as caught:
                await verb()
            told.append(caught.value)
        with pytest.raises(StoreLost):
            async for _ in queue.leases(until="drained"):
                pass
        shows("F6", "nothing heard: verbs that told StoreLost", len(told), exactly=4)
        await crash(queue)  # it has nobody to take leave from


# --- a server that may not write -----------------------------------------------------------------


async def test_a_name_that_means_another_server_is_looked_up_again(
    pair: Pair, shows: Evidence
) -> None:
    """Connections to the former master stay open, and are of no use."""
    async with open_run(pair.name.url, op_timeout=OP_TIMEOUT) as queue:
        load = SteadyLoad(queue)
        async with background(load.run()) as running:
            await load.until_sent(200)
            await asyncio.to_thread(pair.exchange)
            exchanged = time.monotonic()
            await load.until_completed(50)
            resumed = time.monotonic() - exchanged
            load.stop()
            await running
        await load.finish()
        account = await load.account()
    shows("F7", "work goes on at the new master after", resumed, at_most=3.0 * SLACK, unit="s")
    shows("F7", "errors to callers", load.refusals.total(), exactly=0)
    shows("F7", "callers failed before their time", load.failed_early(OP_TIMEOUT), exactly=0)
    shows("F7", "slowest verb", load.slowest, at_most=OP_TIMEOUT, unit="s")
    shows("F7", "lost in an exchange in good order", len(account.lost), exactly=0)
    with pair.master.client() as client:
        refused = client.info("errorstats").get("errorstat_READONLY", {"count": 0})["count"]
    shows("F7", "READONLY told by the former master", refused, at_least=1)


async def test_a_replica_that_nobody_promotes_is_an_outage(pair: Pair, shows: Evidence) -> None:
    async with open_run(pair.name.url, op_timeout=OP_TIMEOUT) as queue:
        await queue.enqueue(["one"])
    await asyncio.to_thread(wait_until_followed, pair.master)
    start = time.monotonic()
    with pytest.raises(StoreUnavailable, match="READONLY"):
        async with open_run(pair.replica.url, op_timeout=1.0) as queue:
            await queue.enqueue(["two"])
    took = time.monotonic() - start
    shows("F7", "pointed at a replica: told after", took, at_most=1.0 * 2 * SLACK, unit="s")
