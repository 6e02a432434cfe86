"""What the handlers of simulated requests do with their leases."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from data_fetcher_core.errors import StoreError
from data_fetcher_core.queue import Lease
from tests.histories import UNKNOWN
from tests.simulation.operating import Operator, as_entry
from tests.simulation.plan import Job

RETRIES = (0.2, 1.0)
MAX_ATTEMPTS = 3
_TRIES = 3


class _GaveUp(StoreError):
    """The store did not answer; the context gives the lease back."""


class Handler:
    """Handles leases in one process, as the plan says."""

    def __init__(self, operator: Operator, chance: random.Random, die: Callable[[], None]) -> None:
        self._operator = operator
        self._chance = chance
        self._die = die
        self._deeds: dict[str, Callable[[Lease, Job], Awaitable[None]]] = {
            "complete": self._complete,
            "outlast the lease": self._complete,
            "as a context": self._as_a_context,
            "bring children": self._bring_children,
            "fail once": self._fail_once,
            "fail always": self._fail,
            "release": self._release,
            "bury": self._bury,
            "give back": self._give_back,
            "progress": self._progress,
            "drop": self._drop,
            "kill the process": self._kill,
            "let go of the lease": self._let_go,
        }

    async def handle(self, lease: Lease, job: Job) -> None:
        """If this is cancelled the lease is let go of, or given back by its context."""
        done = False
        try:
            if job.takes and job.does != "as a context":
                await self._operator.process.clock.sleep(job.takes)
            await self._deeds[job.does](lease, job)
            done = True
        finally:
            if not done:
                self._operator.let_go(lease)
            # What a traceback holds is held, until garbage is collected; here that is never.
            del lease

    async def _insist(self, verb: str, lease: Lease, job: Job, children: tuple[Job, ...]) -> bool:
        """Repeating a settlement is safe: it works, or the lease is lost."""
        result = {"n": job.name, "token": lease.token.hex()}
        entries = [as_entry(child) for child in children]
        for _ in range(_TRIES):
            work = (
                lease.complete(entries, result=result)
                if verb == "complete"
                else lease.progress(entries)
            )
            if await self._operator.settle(verb, lease, work, children) != UNKNOWN:
                return True
        self._operator.let_go(lease)
        return False

    async def _complete(self, lease: Lease, job: Job) -> None:
        await self._insist("complete", lease, job, ())

    async def _bring_children(self, lease: Lease, job: Job) -> None:
        await self._insist("complete", lease, job, children_of(job, lease.token.hex()))

    async def _as_a_context(self, lease: Lease, job: Job) -> None:
        with suppress(_GaveUp):
            async with lease:
                try:
                    await self._operator.process.clock.sleep(job.takes)
                    if not await self._insist("complete", lease, job, ()):
                        raise _GaveUp
                except asyncio.CancelledError:
                    self._operator.let_go(lease)
                    raise

    async def _fail_once(self, lease: Lease, job: Job) -> None:
        if lease.attempts:
            await self._complete(lease, job)
        else:
            await self._fail(lease, job)

    async def _fail(self, lease: Lease, job: Job) -> None:
        last = lease.attempts + 1 >= MAX_ATTEMPTS
        verb, delay = ("bury", 0.0) if last else ("release", RETRIES[lease.attempts])
        await self._operator.settle(verb, lease, _failing(lease), delay=delay)

    async def _release(self, lease: Lease, job: Job) -> None:
        if lease.attempts:
            await self._complete(lease, job)
        else:
            delay = self._chance.choice((0.0, 0.3, 2.0))
            await self._operator.settle("release", lease, lease.release(delay, "no"), delay=delay)

    async def _bury(self, lease: Lease, job: Job) -> None:
        await self._operator.settle("bury", lease, lease.bury("no"))

    async def _give_back(self, lease: Lease, job: Job) -> None:
        if self._chance.random() < 0.5:
            await self._operator.settle("give_back", lease, lease.give_back())
        else:
            await self._complete(lease, job)

    async def _progress(self, lease: Lease, job: Job) -> None:
        if self._chance.random() < 0.5:
            await self._insist("progress", lease, job, children_of(job, lease.token.hex()))
        else:
            await self._complete(lease, job)

    async def _drop(self, lease: Lease, job: Job) -> None:
        await self._operator.settle("drop", lease, lease.drop())

    async def _kill(self, lease: Lease, job: Job) -> None:
        self._die()
        await self._operator.process.clock.sleep(1.0)

    async def _let_go(self, lease: Lease, job: Job) -> None:
        if self._chance.random() < 0.5:
            self._operator.let_go(lease)
        else:
            await self._complete(lease, job)


async def _failing(lease: Lease) -> None:
    async with lease:
        raise ValueError("no")


def children_of(job: Job, token: str) -> tuple[Job, ...]:
    """Some have a key, and are the same whoever brings them; the others are this lease's own."""
    keyed = job.children == 2
    return tuple(
        Job(
            f"{job.name}/{at}" if keyed else f"{job.name}/{token[8:16]}{token[-2:]}.{at}",
            key=f"{job.name}/{at}" if keyed else "",
            lane="abc"[at % 3],
            delay=0.5 if at == 2 else 0.0,
        )
        for at in range(job.children)
    )
