"""A Redis that is killed and comes back: with all, with all but the last moment, or not at all."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from data_fetcher_core.core import Entry
from data_fetcher_core.errors import StoreLost, StoreUnavailable
from data_fetcher_core.events import Event, StepsForgotten
from data_fetcher_core.queue import KVStoreQueue
from tests.conftest import StartRedis
from tests.demands import injected
from tests.evidence import Evidence
from tests.fault_support import Ledger, bounded, drain, open_run
from tests.harness import accounted, background, crash, impatient, settled
from tests.servers import RedisServer, wait_for
from tests.steady_load import Account, SteadyLoad

__all__ = ["bounded"]

SLACK = 3
OP_TIMEOUT = 6.0


# --- killed under load ---------------------------------------------------------------------------


async def _restart_under_load(
    queue: KVStoreQueue, server: RedisServer, times: int
) -> tuple[SteadyLoad, Account, list[float]]:
    """And how long after each return the work went on."""
    load, resumed = SteadyLoad(queue), []
    async with background(load.run()) as running:
        for _ in range(times):
            await load.until_completed(100)
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.start)
            returned = time.monotonic()
            await load.until_completed(1)
            resumed.append(time.monotonic() - returned)
        await load.until_completed(100)
        load.stop()
        await running
    await load.finish()
    return load, await load.account(), resumed


async def test_a_server_that_syncs_always_loses_nothing(
    each_redis: RedisServer, start_redis: StartRedis, shows: Evidence
) -> None:
    server = start_redis(each_redis.binary, appendonly="yes", appendfsync="always")
    version, told = server.binary.label, list[Event]()
    async with open_run(server.url, op_timeout=OP_TIMEOUT, subscriber=told.append) as queue:
        load, account, resumed = await _restart_under_load(queue, server, times=2)
    shows("F2", f"{version}, killed twice: lost or forgotten", len(account.forgotten), exactly=0)
    shows("F2", f"{version}: completed twice", len(account.completed_twice), exactly=0)
    shows("F2", f"{version}: delivered twice", len(account.delivered_twice), exactly=0)
    shows("F2", f"{version}: requests nobody sent", len(account.appeared), exactly=0)
    shows("F2", f"{version}: errors to callers", load.refusals.total(), exactly=0)
    forgotten = [event for event in told if isinstance(event, StepsForgotten)]
    shows("F2", f"{version}: steps told as forgotten", len(forgotten), exactly=0)
    at_most = 2.0 * SLACK
    shows("F2", f"{version}: work after its first PONG", max(resumed), at_most=at_most, unit="s")


# --- a disk that is slow to sync -----------------------------------------------------------------


_SLOW_SYNCS = "fdatasync:delay_enter=5000000"


def _slow_syncs_noticed(server: RedisServer) -> int:
    """How often the server itself has found that a sync took too long to wait for."""
    with server.client() as client:
        return int(client.info("persistence")["aof_delayed_fsync"])


async def test_a_server_that_syncs_every_second_loses_the_last_two(
    start_redis: StartRedis, shows: Evidence
) -> None:
    """While a sync is under way Redis keeps back what it should write, for two seconds at most."""
    server = start_redis(appendonly="yes", appendfsync="everysec")
    told: list[Event] = []
    async with open_run(server.url, op_timeout=OP_TIMEOUT, subscriber=told.append) as queue:
        load = SteadyLoad(queue)
        async with background(load.run()) as running:
            with injected(server.pid, _SLOW_SYNCS):
                await asyncio.to_thread(wait_for, lambda: _slow_syncs_noticed(server) > 0, "fast")
                await asyncio.sleep(1.0)  # of which nothing is written yet
                noticed = _slow_syncs_noticed(server)
                killed = time.monotonic()
                await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            returned = time.monotonic()
            await load.until_completed(100)
            load.stop()
            await running
        await load.finish()
        account = await load.account()
    shows("F3", "times the server found its syncs slow", noticed, at_least=1)
    shows("F3", "forgotten (or nothing was tried)", len(account.forgotten), at_least=1)
    shows("F3", "lost of these", len(account.lost), told=True)
    shows("F3", "delivered twice", len(account.delivered_twice), told=True)
    before = account.forgotten - load.sent_within(killed - 2.1, returned)
    shows("F3", "forgotten of what came earlier than 2.1 s before", len(before), exactly=0)
    repeated = account.delivered_twice - load.within(killed - 2.1, returned + 1.0)
    shows("F3", "repeated of what was done earlier than that", len(repeated), exactly=0)
    shows("F3", "requests nobody sent", len(account.appeared), exactly=0)
    shows("F3", "tokens given twice", account.tokens_reused, exactly=0)
    told_of = [event for event in told if isinstance(event, StepsForgotten)]
    shows("F3", "times that the store was told to have forgotten", len(told_of), at_least=1)


# --- an append-only file that was damaged --------------------------------------------------------


def _log_of(server: RedisServer) -> Path:
    """The file that is being appended to: one since ever, one of several since Redis 7."""
    found = [*server.directory.glob("appendonly.aof"), *server.directory.glob("*/*.incr.aof")]
    (file,) = [path for path in found if path.is_file()]
    return file


async def test_a_log_cut_short_costs_the_last_step_alone(
    each_redis: RedisServer, start_redis: StartRedis, shows: Evidence
) -> None:
    server = start_redis(each_redis.binary, appendonly="yes", appendfsync="always")
    version, ledger, told = server.binary.label, Ledger(), list[Event]()
    async with open_run(server.url, op_timeout=OP_TIMEOUT, subscriber=told.append) as queue:
        for n in range(20):
            await ledger.enqueue(queue, [f"{n}"])
        for lease in await queue.lease(5):
            await ledger.complete(lease)
        await settled(queue)
        await queue.enqueue([Entry("last", id="last")])
        await asyncio.to_thread(server.kill)
        log = _log_of(server)
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size - 7)
        await asyncio.to_thread(server.start)
        stats = await accounted(queue)
        shows("F39", f"{version}, cut by 7 bytes: requests lost", 21 - stats.enqueued, exactly=1)
        shows("F39", f"{version}, cut by 7 bytes: settlements lost", 5 - stats.completed, exactly=0)
        # Who was there before knows what it was promised, and its next beat compares.
        await queue.sweep()
        steps = sum(event.steps for event in told if isinstance(event, StepsForgotten))
        shows("F39", f"{version}, cut by 7 bytes: steps told as forgotten", steps, exactly=1)
        await ledger.balance(queue)


async def test_a_log_that_is_damaged_is_an_outage_and_no_empty_queue(
    each_redis: RedisServer, start_redis: StartRedis, shows: Evidence
) -> None:
    server = start_redis(each_redis.binary, appendonly="yes", appendfsync="always")
    version = server.binary.label
    async with open_run(server.url) as queue:
        await queue.enqueue([f"{n}" for n in range(20)])
        (held,) = await queue.lease()
        await impatient(queue, 0.3)
        await asyncio.to_thread(server.kill)
        log = _log_of(server)
        whole = log.read_bytes()
        log.write_bytes(_with_a_length_smashed(whole))
        with pytest.raises(RuntimeError, match="Bad file format"):
            await asyncio.to_thread(server.start)
        told = 0
        for verb in (queue.stats, held.complete, queue.lease, lambda: queue.enqueue(["more"])):
            with pytest.raises(StoreUnavailable):
                await verb()
            told += 1
        with pytest.raises(StoreUnavailable):
            async for _ in queue.leases(until="drained"):
                pass
        shows("F39", f"{version}, smashed: verbs that told of an outage", told, exactly=4)
        log.write_bytes(whole)
        await asyncio.to_thread(server.start)
        await impatient(queue, OP_TIMEOUT)
        await held.give_back()
        shows("F39", f"{version}, put back: requests there", len(await drain(queue)), exactly=20)


def _with_a_length_smashed(log: bytes) -> bytes:
    middle = log.index(b"\r\n$", len(log) // 2) + 3
    return log[:middle] + b"x" + log[middle + 1 :]


# --- a server that comes back empty --------------------------------------------------------------


def _wipe(server: RedisServer) -> None:
    server.kill()
    for path in server.directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    server.start()


@pytest.mark.parametrize("how", ["flushed", "wiped"])
async def test_a_server_that_comes_back_empty_is_told(
    start_redis: StartRedis, shows: Evidence, how: str
) -> None:
    server = start_redis(appendonly="yes", appendfsync="always")
    async with open_run(server.url, op_timeout=OP_TIMEOUT) as queue:
        await queue.enqueue(["one", "two"])
        (lease,) = await queue.lease()
        await asyncio.to_thread(RedisServer.flush if how == "flushed" else _wipe, server)
        told = 0
        for verb in (
            *(lease.complete, queue.lease, queue.stats, queue.sweep, queue.results),
            lambda: queue.enqueue(["three"]),
            lambda: anext(aiter(queue.leases(until="drained"))),
        ):
            with pytest.raises(StoreLost):
                await verb()
            told += 1
        shows("F5", f"{how}: verbs that told StoreLost", told, exactly=7)
        with server.client() as client:
            shows("F5", f"{how}: keys written afterwards", client.dbsize(), exactly=0)
        await crash(queue)
