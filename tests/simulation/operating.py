"""Public operations as a simulated process does them: written down, and perhaps cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from data_fetcher_core import Entry
from data_fetcher_core.errors import LeaseLost, StoreError
from data_fetcher_core.queue import KVStoreQueue, Lease
from data_fetcher_core.queue.lease import LeaseState
from tests.histories import DONE, DUPLICATE, NEW, REFUSED, UNKNOWN, Recorder
from tests.simulation.plan import Job
from tests.simulation.process import Process

T = TypeVar("T")


class Cut(Exception):
    """The operation was cancelled by its caller."""


class Operator:
    """What one process asks of its queue."""

    def __init__(self, process: Process, queue: KVStoreQueue, recorder: Recorder) -> None:
        self.process = process
        self.queue = queue
        self.recorder = recorder
        self.operations = 0
        self.cancelled = 0
        self.deliveries = 0

    async def attempt(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it; if that is planned, cancel it after so many turns or so long."""
        self.operations += 1
        if not self.process.cuts:
            return await work
        cut = self.process.cuts.popleft()
        task = asyncio.get_running_loop().create_task(work)
        try:
            for _ in range(cut.count):
                await asyncio.sleep(0)
            await asyncio.wait([task], timeout=cut.duration)
        finally:
            task.cancel()
            await asyncio.wait([task])
        if task.cancelled():
            self.cancelled += 1
            raise Cut
        return task.result()

    # --- taking in -----------------------------------------------------------------------------

    async def enqueue(
        self, jobs: Sequence[Job], *, one_step: bool, checkpoint: dict[str, Any] | None = None
    ) -> bool:
        """Whether it is known to have been taken in."""
        step = len(self.recorder.events) + 1 if one_step else 0
        begun = [self._begin_job(job, step) for job in jobs]
        if checkpoint is not None:
            begun.append(self._begin_save(checkpoint, step))
        try:
            taken = await self.attempt(
                self.queue.enqueue([as_entry(job) for job in jobs], checkpoint=checkpoint)
            )
        except (Cut, StoreError):
            self._end(begun, UNKNOWN)
            return False
        self._end(begun, NEW if taken == len(jobs) else DUPLICATE if taken == 0 else DONE)
        return True

    def _begin_job(self, job: Job, step: int, token: str = "") -> int:
        return self.recorder.begin(
            "enqueue",
            self.process.name,
            request=job.name,
            key=job.key,
            delay=job.delay,
            step=step,
            token=token,
        )

    def _begin_save(self, checkpoint: dict[str, Any], step: int) -> int:
        (value,) = checkpoint.values()
        return self.recorder.begin("save", self.process.name, value=value, step=step)

    def _end(self, begun: Sequence[int], outcome: str) -> None:
        for number in begun:
            self.recorder.end(number, outcome)

    # --- handing out ---------------------------------------------------------------------------

    def note_leases(self, leases: Sequence[Lease], asked_at: float) -> None:
        for lease in leases:
            self.note_lease(lease, asked_at)

    def note_lease(self, lease: Lease, asked_at: float) -> None:
        self.deliveries += 1
        self.recorder.note(
            "lease",
            self.process.name,
            start=asked_at,
            request=lease.item["n"],
            token=lease.token.hex(),
            attempts=lease.attempts,
            deaths=lease.deaths,
        )

    def let_go(self, lease: Lease) -> None:
        """Nobody here holds it any more, and nobody tells the store: the heart must find out."""
        self.recorder.begin(
            "give_back", self.process.name, request=lease.item["n"], token=lease.token.hex()
        )

    async def settle(
        self,
        verb: str,
        lease: Lease,
        work: Coroutine[Any, Any, Any],
        children: Sequence[Job] = (),
        delay: float = 0.0,
    ) -> str:
        """How it ended. What a context manager swallows is told by the lease itself."""
        step, token = len(self.recorder.events) + 1, lease.token.hex()
        begun = [self._begin_job(child, step, token) for child in children]
        begun.append(
            self.recorder.begin(
                verb,
                self.process.name,
                request=lease.item["n"],
                token=token,
                step=step,
                delay=delay,
            )
        )
        outcome = UNKNOWN
        try:
            await self.attempt(work)
        except LeaseLost:
            outcome = REFUSED
        except (Cut, StoreError):
            pass
        else:
            outcome = REFUSED if lease.state is LeaseState.LOST else DONE
        finally:
            self._end(begun, outcome)
        return outcome


def as_entry(job: Job) -> Entry:
    """Half of those with a key take their id from it."""
    named = not job.key or len(job.name) % 2
    return Entry(
        {"n": job.name},
        id=job.name if named else None,
        lane=job.lane,
        key=job.key or None,
        priority=job.priority,
        delay=job.delay,
    )
