"""Calls that are cancelled, and a network that swallows all: nothing is lost or left open."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from data_fetcher_core.errors import LeaseLost, StoreLost, StoreUnavailable
from data_fetcher_core.events import Event, HeartbeatMissed
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.queue.lease import LeaseState
from data_fetcher_core.testing import ManualClock
from tests.conftest import StartRedis
from tests.cores import without_a_core
from tests.evidence import Evidence
from tests.fault_support import VERBS, Act, Ledger, bounded, open_run
from tests.harness import accounted, beat_twice, letters, places, settled, silence
from tests.redis_proxy import Exchange, RedisProxy
from tests.servers import RedisServer, open_files
from tests.waiting import until

__all__ = ["bounded"]

SLACK = 3


# --- cancelled at one exact point ----------------------------------------------------------------


class Halt:
    """Holds one message up at a stage of its way, until it is let go."""

    def __init__(self, stage: str) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self._stage = stage

    async def __call__(self, exchange: Exchange) -> None:
        await self._pause_if("unsent")
        await exchange.forward()
        reply = await exchange.reply()
        await self._pause_if("unanswered")
        await exchange.send(reply)

    async def _pause_if(self, stage: str) -> None:
        if stage == self._stage:
            self.reached.set()
            await self.go.wait()


# A verb of one step has happened, or it has not. Of these some steps may have happened.
IN_STEPS = ("enqueue in three steps", "dequeue", "reap", "cancel", "cancel and forget", "clear")


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "close"])
@pytest.mark.parametrize("stage", ["unsent", "unanswered"])
async def test_a_cancelled_verb_has_happened_or_has_not(
    redis_proxy: RedisProxy, verb: str, stage: str
) -> None:
    async with Act(redis_proxy.url, "without") as act:
        without = await act.view()
    async with Act(redis_proxy.url, "with") as act:
        await VERBS[verb](act)
        await settled(act.queue)
        happened = await act.view()
    async with Act(redis_proxy.url, "cancelled") as act:
        halt = Halt(stage)
        redis_proxy.fault(halt, command="EVALSHA")
        task = asyncio.ensure_future(VERBS[verb](act))
        async with asyncio.timeout(10):
            await halt.reached.wait()
            task.cancel()
            await asyncio.wait([task])
        assert task.cancelled()
        halt.go.set()
        await settled(act.queue)
        if verb == "forget":
            await _forget_again(act)
        found = await act.view()
        if verb not in IN_STEPS:
            assert _within_lanes(found) in (_within_lanes(without), _within_lanes(happened))
        # Nobody got a lease, and so nobody has one.
        holding = [lease for lease in act.held if lease.state is LeaseState.HELD]
        assert found["stats"].leased <= len(holding)


def _within_lanes(view: dict[str, Any]) -> dict[str, Any]:
    """What is given back goes to the front of its lane; which lane is next, may have changed."""
    lanes = [[name for name in view["order"] if name in group] for group in ("0246", "1357")]
    return {**view, "order": (sorted(view["order"]), lanes)}


async def _forget_again(act: Act) -> None:
    """Half a run is told as such, until the rest is forgotten too."""
    try:
        await accounted(act.queue)
    except StoreLost:
        await act.queue.forget()


# --- cancelled a thousand times, anywhere --------------------------------------------------------


class Caller:
    """Calls verbs that tell by their answer whose they are."""

    def __init__(self, queue: KVStoreQueue, ledger: Ledger, dice: random.Random) -> None:
        self._queue = queue
        self._ledger = ledger
        self._dice = dice
        self.answered = 0
        self.cancelled = 0

    async def call(self, name: str) -> None:
        act = self._dice.choice([self._enqueue, self._work, self._work, self.look])
        task = asyncio.ensure_future(act(name))
        await asyncio.wait([task], timeout=self._dice.choice([0.0, 0.002, 0.004, 0.008, 1.0]))
        task.cancel()
        await asyncio.wait([task])
        self.cancelled += task.cancelled()
        if not task.cancelled():
            self.answered += 1
            task.result()

    async def _enqueue(self, name: str) -> None:
        await self._ledger.enqueue(self._queue, [name], lane=name[-1])

    async def look(self, name: str) -> None:
        """Nobody else's call can share its connection."""
        await self._queue.enqueue([], checkpoint={name: name})
        assert await self._queue.checkpoint(name) == name

    async def _work(self, name: str) -> None:
        leases = await self._queue.lease(self._dice.randrange(1, 4), wait=0.001)
        for number, lease in enumerate(leases):
            assert lease.item == lease.id
            if self._dice.random() < 0.2:
                await lease.release()
            else:
                child = [f"{name}, child {number}"]
                await self._ledger.complete(lease, child if self._dice.random() < 0.5 else ())


@pytest.mark.parametrize("times", [300, pytest.param(3_000, marks=pytest.mark.slow)])
async def test_cancelled_calls_mix_up_nothing_and_leave_nothing_open(
    redis_proxy: RedisProxy, redis_server: RedisServer, shows: Evidence, times: int
) -> None:
    dice, ledger = random.Random(times), Ledger()

    async def dawdle(exchange: Exchange) -> None:
        await asyncio.sleep(dice.uniform(0, 0.003))
        await exchange.forward()
        reply = await exchange.reply()
        await asyncio.sleep(dice.uniform(0, 0.003))
        await exchange.send(reply)

    async with open_run(redis_proxy.url, max_attempts=1000) as queue:
        callers = [Caller(queue, ledger, dice) for _ in range(10)]
        redis_proxy.fault(dawdle, times=float("inf"))
        # Everybody at once, every kind of call, and a beat: as many connections as will be used.
        looks = (caller.look(f"first of {n}") for n, caller in enumerate(callers))
        await asyncio.gather(queue.sweep(), *looks)
        for turn in range(10):
            calls = (caller.call(f"warm {turn} of {n}") for n, caller in enumerate(callers))
            await asyncio.gather(queue.sweep(), *calls)
        files, clients = open_files(), redis_server.connected_clients()
        turn = 0
        while sum(caller.cancelled for caller in callers) < times:
            turn += 1
            calls = (caller.call(f"{turn} of {n}") for n, caller in enumerate(callers))
            await asyncio.gather(*calls)
        assert sum(caller.answered for caller in callers) > times / 10
        redis_proxy.heal()
        await beat_twice(queue)
        await until(lambda: redis_server.connected_clients() <= clients + 2)
        # Each has two ends of its own here, for the proxy is in this process.
        await until(lambda: open_files() <= files + 3 * 2)
        shows(
            "F12", "calls of a queue cancelled", sum(c.cancelled for c in callers), at_least=times
        )
        shows("F12", "leased by nobody", (await places(queue)).get("leased", 0), exactly=0)
        (await ledger.account(queue)).show(shows, "F12")


# --- a network that swallows everything ----------------------------------------------------------

OP_TIMEOUT = 1.0
# What the promise allows, and the slack that a busy machine needs.
IN_TIME = OP_TIMEOUT * 1.1 * SLACK


async def _seconds(call: Awaitable[Any]) -> float:
    """How long it takes to be told that the store cannot be reached."""
    start = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await call
    return time.monotonic() - start


@pytest.mark.parametrize("direction", ["requests", "replies"])
async def test_every_verb_ends_in_time_and_works_again_afterwards(
    redis_proxy: RedisProxy, shows: Evidence, direction: str
) -> None:
    ledger = Ledger()
    async with open_run(redis_proxy.url, op_timeout=OP_TIMEOUT) as queue:
        await ledger.enqueue(queue, [f"{n}" for n in range(8)])
        held = await queue.lease(3)
        await queue.shut("lane", 0.001)
        redis_proxy.block(direction)
        calls = [
            ledger.enqueue(queue, ["new"]),
            queue.lease(),
            ledger.complete(held[0], ["child"]),
            held[1].give_back(),
            queue.sweep(),
            queue.stats(),
            queue.peek(),
            queue.checkpoint("cursor"),
            queue.results(),
            queue.recount(),
            queue.cancel(["nobody"]),
            queue.purge_dead(1e6),
            queue.requeue(),
            queue.shut("lane", 0.001),
            letters(queue),
        ]
        seconds = await asyncio.gather(*map(_seconds, calls))
        shows("F14", "the slowest verb, of 1 s", max(seconds), at_most=IN_TIME, unit="s")
        redis_proxy.unblock()
        start = time.monotonic()
        await ledger.enqueue(queue, ["afterwards"])
        shows("F14", "works again after", time.monotonic() - start, at_most=IN_TIME, unit="s")
        await beat_twice(queue)
        await ledger.complete(held[2])
        for lease in held[:2]:
            with suppress(LeaseLost):
                await lease.give_back()
        await ledger.balance(queue)


async def test_nobody_waits_for_the_silence_of_others(redis_proxy: RedisProxy) -> None:
    """Many callers of one verb, one after the other, end as soon as one alone."""
    async with open_run(redis_proxy.url, op_timeout=OP_TIMEOUT) as queue:
        await queue.enqueue(["one"])
        redis_proxy.block()
        calls = [
            *(queue.cancel([f"{n}"]) for n in range(8)),
            *(queue.lease(lanes=[f"{n}"]) for n in range(8)),
            *(_after(0.1 * n, lambda: queue.enqueue(["more"])) for n in range(8)),
        ]
        seconds = await asyncio.gather(*map(_seconds, calls))
        redis_proxy.unblock()
        assert max(seconds) <= IN_TIME, seconds


async def _after(pause: float, call: Callable[[], Awaitable[Any]]) -> Any:
    await asyncio.sleep(pause)
    return await call()


async def test_the_heart_tells_of_the_silence(redis_proxy: RedisProxy, shows: Evidence) -> None:
    told: list[Event] = []
    lease_ttl = 6.0
    async with open_run(
        redis_proxy.url, subscriber=told.append, lease_ttl=lease_ttl, op_timeout=0.5
    ) as queue:
        await queue.enqueue(["held"])
        (lease,) = await queue.lease()
        redis_proxy.block()
        start, kept_waiting = time.monotonic(), without_a_core()
        await until(lambda: any(isinstance(event, HeartbeatMissed) for event in told))
        # By time of our own: the core that others had meanwhile is no fault of the heart.
        noticed = time.monotonic() - start - (without_a_core() - kept_waiting)
        # No slack: who hears of it when the lease is gone hears of it too late.
        half = lease_ttl / 2
        shows("F14", "the heart tells, of a lease of 6 s", noticed, at_most=half, unit="s")
        redis_proxy.unblock()
        await lease.complete()
        assert (await queue.stats()).completed == 1


async def test_after_the_silence_only_what_is_still_ours_is_handed_out(
    redis_proxy: RedisProxy, redis_url: str, clock: ManualClock
) -> None:
    ledger = Ledger()
    async with (
        open_run(redis_proxy.url, clock=clock, op_timeout=OP_TIMEOUT) as cut_off,
        open_run(redis_url, clock=clock) as other,
    ):
        await ledger.enqueue(other, [f"{n}" for n in range(4)])
        stream = cut_off.leases(prefetch=4, until="drained")
        first = await anext(stream)
        redis_proxy.block()
        await silence(other, clock, 31.0)
        with pytest.raises(StoreUnavailable):
            await anext(stream)
        for lease in await other.lease(3):
            await ledger.complete(lease)
        redis_proxy.unblock()
        with pytest.raises(LeaseLost):
            await first.complete()
        async for lease in stream:
            await ledger.complete(lease)
        await ledger.balance(other)
    assert len(ledger.completed) == 4


async def test_a_server_that_stood_still_goes_on_as_if_nothing_had_been(
    start_redis: StartRedis, shows: Evidence
) -> None:
    """What was given up lies in its sockets, and is done when it wakes: late, and once."""
    server, ledger = start_redis(), Ledger()
    async with open_run(server.url, op_timeout=OP_TIMEOUT) as queue:
        await ledger.enqueue(queue, [f"{n}" for n in range(6)])
        held = await queue.lease(3)
        server.freeze()
        try:
            calls: list[Awaitable[Any]] = [
                ledger.enqueue(queue, ["new"]),
                ledger.complete(held[0], ["child"]),
                queue.lease(),
            ]
            seconds = await asyncio.gather(*map(_seconds, calls))
        finally:
            server.thaw()
        shows("F14", "the slowest verb, of 1 s", max(seconds), at_most=IN_TIME, unit="s")
        await ledger.enqueue(queue, ["afterwards"])
        await beat_twice(queue)
        with suppress(LeaseLost):
            await held[0].give_back()
        for lease in held[1:]:
            await ledger.complete(lease)
        await ledger.balance(queue)
