"""A cluster of three masters with a replica each: slots move and nodes die, under load."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from data_fetcher_core.errors import DataFetcherError
from data_fetcher_core.queue import KVStoreQueue
from tests.evidence import Evidence
from tests.fault_support import bounded, open_run
from tests.harness import background
from tests.servers import RedisCluster, RedisServer, wait_for
from tests.slots import reshard, run_served_by
from tests.steady_load import Account, SteadyLoad, Waiter

__all__ = ["bounded"]

SLACK = 3
OP_TIMEOUT = 6.0
IN_TIME = OP_TIMEOUT * 1.1 * SLACK
_NEVER = (0.0, 0.0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Each test strikes at another of its masters."""
    cluster = RedisCluster(tmp_path_factory.mktemp("replicated"), replicas=1)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


def _told(cluster: RedisCluster, code: str) -> int:
    """How often the nodes that live have answered with this error."""
    count = 0
    for node in cluster.nodes:
        if node.is_running:
            with node.client() as client:
                count += client.info("errorstats").get(f"errorstat_{code}", {"count": 0})["count"]
    return count


def _show(
    shows: Evidence, how: str, load: SteadyLoad, account: Account, fault: tuple[float, float]
) -> None:
    """``fault`` is from when until when something may have been forgotten."""
    window = load.within(*fault)
    figures = {
        "forgotten, sent before the last second": len(account.forgotten - load.sent_within(*fault)),
        "requests nobody sent": len(account.appeared),
        "tokens given twice": account.tokens_reused,
        "duplicates outside of the fault": len(account.delivered_twice - window),
    }
    for what, count in figures.items():
        shows("F41", f"{how}: {what}", count, exactly=0)
    shows("F41", f"{how}: forgotten of the last second", len(account.forgotten), told=True)
    shows("F41", f"{how}: lost of these", len(account.lost), told=True)
    early = load.failed_early(OP_TIMEOUT)
    shows("F41", f"{how}: callers failed before their time", early, exactly=0)
    shows("F41", f"{how}: slowest verb", load.slowest, at_most=IN_TIME, unit="s")


async def _look(queue: KVStoreQueue, failures: Counter[str]) -> None:
    """What only looks is refused by nobody for long, and understood if it is."""
    while True:
        for verb in (queue.stats, lambda: queue.peek(5), lambda: queue.checkpoint("none")):
            try:
                await verb()
            except DataFetcherError as error:
                failures[type(error).__name__] += 1
        await asyncio.sleep(0.01)


async def test_slots_that_move_under_load(cluster: RedisCluster, shows: Evidence) -> None:
    source, target = cluster.masters[0], cluster.masters[1]
    run_id, slot = run_served_by(cluster, source)
    failures: Counter[str] = Counter()
    async with open_run(cluster.url, run_id, op_timeout=OP_TIMEOUT) as queue:
        load = SteadyLoad(queue)
        async with background(load.run()) as running, background(_look(queue, failures)):
            await load.until_sent(100)
            for there, back in [(source, target), (target, source), (source, target)]:
                moved = await asyncio.to_thread(reshard, cluster, there, back, slot, 0.01)
                assert moved >= 5
                await load.until_completed(50)
            load.stop()
            await running
        await load.finish()
        account = await load.account()
    _show(shows, "slots moved 3 times", load, account, _NEVER)
    shows("F41", "slots moved: verbs refused", load.refusals.total(), exactly=0)
    shows("F41", "slots moved: looks refused", failures.total(), exactly=0)
    shows("F41", "slots moved: CROSSSLOT", _told(cluster, "CROSSSLOT"), exactly=0)
    redirected = sum(_told(cluster, code) for code in ("ASK", "TRYAGAIN", "MOVED"))
    shows("F41", "slots moved: redirected (or nothing was tried)", redirected, at_least=3)


async def _strike(
    cluster: RedisCluster,
    victim: RedisServer,
    shows: Evidence,
    how: str,
    *,
    strike: Callable[[], None],
    relieve: Callable[[], None] = lambda: None,
) -> None:
    run_id, _ = run_served_by(cluster, victim)
    seeds = ",".join(f"127.0.0.1:{node.port}" for node in cluster.masters)
    url = f"redis+cluster://{seeds}"
    async with (
        open_run(url, run_id, op_timeout=OP_TIMEOUT) as queue,
        open_run(url, run_id, op_timeout=OP_TIMEOUT) as idle,
    ):
        load, waiter = SteadyLoad(queue), Waiter(idle)
        async with background(load.run()) as running, background(waiter.run()) as waiting:
            await load.until_sent(200)
            struck = time.monotonic()
            strike()
            await asyncio.to_thread(_until_promoted, cluster.replica_of(victim))
            promoted = time.monotonic()
            await load.until_completed(100)
            resumed = time.monotonic() - promoted
            load.stop()
            await running
            await waiter.wake(queue)
            await waiting
        await load.finish()
        account = await load.account()
        relieve()
    _show(shows, how, load, account, (struck - 1.0, promoted + 1.0))
    shows("F41", f"{how}: CROSSSLOT", _told(cluster, "CROSSSLOT"), exactly=0)
    shows("F41", f"{how}: work goes on", resumed, at_most=3.0 * SLACK, unit="s")
    shows("F41", f"{how}: who waited hears", waiter.took, at_most=6.0 * SLACK, unit="s")


def _until_promoted(replica: RedisServer) -> None:
    def is_master() -> bool:
        with replica.client() as client:
            role: Any = client.execute_command("ROLE")
        return bool(role[0] == b"master")

    wait_for(is_master, f"{replica} was not promoted; {replica.log()[-2000:]}")


async def test_a_master_that_dies_under_load(cluster: RedisCluster, shows: Evidence) -> None:
    victim = cluster.masters[1]
    await _strike(cluster, victim, shows, "a master killed", strike=victim.kill)


async def test_a_master_that_stands_still_under_load(
    cluster: RedisCluster, shows: Evidence
) -> None:
    """It refuses nothing, so that nobody is told to look elsewhere."""
    victim = cluster.masters[2]
    try:
        await _strike(
            cluster,
            victim,
            shows,
            "a master frozen",
            strike=victim.freeze,
            relieve=victim.thaw,
        )
    finally:
        victim.thaw()
