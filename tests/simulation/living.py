"""What a simulated process does while it lives: produce, work, look around."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from data_fetcher_core.errors import StoreError
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue, Lease, QueueOptions
from data_fetcher_core.retry import FixedDelays
from tests.histories import Recorder, Violation
from tests.simulation.deeds import MAX_ATTEMPTS, RETRIES, Handler
from tests.simulation.operating import Cut, Operator
from tests.simulation.plan import LEASE_TTL, TROUBLE, Job, Plan
from tests.simulation.process import Process

NAMESPACE = "fetch:sim"
MAX_DEATHS = 3
BATCHES = 4
CURSOR = "feed"
_SOON = 0.3


class Supply:
    """The requests that are still to be sent. It outlives the processes that send them."""

    def __init__(self, plan: Plan) -> None:
        jobs = plan.jobs
        cut = len(jobs) - len(jobs) // 5
        self.jobs = {job.name: job for job in jobs}
        self._unsent = list(jobs[:cut])
        by_cursor = [Job(j.name, j.does, j.lane, key=j.name, takes=j.takes) for j in jobs[cut:]]
        self.batches = [by_cursor[at::BATCHES] for at in range(BATCHES)]
        self.on_the_way = 0
        self.cursor_done = not by_cursor

    def next(self, chance: random.Random) -> list[Job]:
        many = min(chance.choice((1, 1, 2, 4)), len(self._unsent))
        taken, self._unsent = self._unsent[:many], self._unsent[many:]
        return taken

    def back(self, jobs: Sequence[Job]) -> None:
        """What may not have arrived is sent again, if a key makes that safe."""
        self._unsent += [job for job in jobs if job.key]

    @property
    def is_over(self) -> bool:
        return not self._unsent and not self.on_the_way and self.cursor_done

    def job(self, name: str) -> Job:
        return self.jobs.get(name) or Job(name)


class QueueLife:
    """One process from its start to its end."""

    def __init__(
        self,
        process: Process,
        store: Any,
        plan: Plan,
        supply: Supply,
        *,
        recorder: Recorder,
        chance: random.Random,
        die: Callable[[], None],
        is_over: Callable[[], bool],
        tell: Callable[[Violation], None],
    ) -> None:
        self.process = process
        self._plan = plan
        self._supply = supply
        self._chance = chance
        self._is_over = is_over
        self._tell = tell
        self._leaving = asyncio.Event()
        self.workers: list[asyncio.Task[None]] = []
        self.queue = KVStoreQueue(
            store,
            NAMESPACE,
            JSONSerializer(),
            options=options_of(plan),
            clock=process.clock,
            subscriber=lambda _: None,
        )
        self.operator = Operator(process, self.queue, recorder)
        self._handler = Handler(self.operator, chance, die)

    def leave(self) -> None:
        self._leaving.set()

    def figures(self) -> dict[str, int]:
        return {
            "operations": self.operator.operations,
            "operations cut short": self.operator.cancelled,
            "deliveries": self.operator.deliveries,
        }

    async def live(self) -> bool:
        """Until nothing is left to do, or until it is asked to go."""
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(self._produce()), group.create_task(self._look_around())]
            if self.process.number in {0, len(self._plan.layout) - 1}:
                helpers.append(group.create_task(self._feed()))
            keepers = [
                group.create_task(self._keep_working(at))
                for at in range(self._plan.layout[self.process.number])
            ]
            done = group.create_task(_wait_for_all(keepers))
            going = group.create_task(self._leaving.wait())
            await asyncio.wait([done, going], return_when=asyncio.FIRST_COMPLETED)
            # Who was asked to go, and went long after that, has not seen that nothing is left.
            saw_the_end = done.done()
            for task in (*helpers, *keepers, done, going):
                task.cancel()
        await self._close()
        return saw_the_end and self._is_over()

    async def _close(self) -> None:
        """As long as it takes: a process that cannot say goodbye is found dead by the others."""
        await self.queue.shutdown()
        with suppress(StoreError):
            await self.queue.close()

    # --- producing -----------------------------------------------------------------------------

    async def _produce(self) -> None:
        supply = self._supply
        while True:
            jobs = supply.next(self._chance)
            if jobs:
                await self._send(jobs)
            elif supply.is_over:
                return
            await self.process.clock.sleep(self._chance.uniform(0.0, _SOON))

    async def _send(self, jobs: list[Job]) -> None:
        with self._under_way(jobs) as unknown:
            if await self.operator.enqueue(jobs, one_step=not self._plan.capacity):
                unknown.clear()

    @contextmanager
    def _under_way(self, jobs: list[Job]) -> Iterator[list[Job]]:
        """The world is not at rest meanwhile; what is left of ``jobs`` is sent again."""
        self._supply.on_the_way += 1
        self.process.unsent.append(jobs)
        try:
            yield jobs
        finally:
            self.process.unsent.pop(_index_of(jobs, self.process.unsent))
            self._supply.on_the_way -= 1
            self._supply.back(jobs)

    async def _feed(self) -> None:
        """Batches with a cursor that is saved in the step that takes them in."""
        while not self._supply.cursor_done:
            with suppress(StoreError, Cut):
                cursor = await self.operator.attempt(self.queue.checkpoint(CURSOR)) or 0
                if cursor >= BATCHES:
                    self._supply.cursor_done = True
                    return
                await self.operator.enqueue(
                    self._supply.batches[cursor], one_step=True, checkpoint={CURSOR: cursor + 1}
                )
            await self.process.clock.sleep(self._chance.uniform(0.0, 3 * _SOON))

    # --- working -------------------------------------------------------------------------------

    async def _keep_working(self, at: int) -> None:
        """A worker that was cancelled is replaced."""
        while True:
            worker = asyncio.get_running_loop().create_task(self._work(at))
            self.workers.append(worker)
            try:
                await asyncio.wait([worker])
            finally:
                worker.cancel()
                self.workers.remove(worker)
            if not worker.cancelled():
                worker.result()
                return

    async def _work(self, at: int) -> None:
        """Some read a stream, the others ask by hand."""
        by_hand = at % 3 == 2
        while True:
            with suppress(StoreError, Cut):
                await (
                    self._work_by_hand() if by_hand else self._work_on_a_stream(1 + 2 * (at % 2))
                )
                if self._is_over():
                    return
            await self.process.clock.sleep(_SOON)

    async def _work_on_a_stream(self, prefetch: int) -> None:
        async with self.queue.leases(prefetch=prefetch, until="drained") as stream:
            while True:
                asked_at = asyncio.get_running_loop().time()
                lease = await self.operator.attempt(stream.next())
                if lease is None:
                    return
                try:
                    await self._handle(lease, asked_at)
                finally:
                    del lease

    async def _work_by_hand(self) -> None:
        """Until nothing came for a while, and nothing is left."""
        while True:
            asked_at = asyncio.get_running_loop().time()
            leases = await self.operator.attempt(self.queue.lease(2, wait=2.0))
            self.operator.note_leases(leases, asked_at)
            if not leases and (await self.queue.stats()).size == 0:
                return
            await self._handle_all(leases)
            del leases

    async def _handle_all(self, leases: list[Lease]) -> None:
        try:
            while leases:
                lease = leases.pop(0)
                await self._handler.handle(lease, self._supply.job(lease.item["n"]))
                del lease
        finally:
            # Let go of in earnest: what a traceback holds is held.
            while leases:
                self.operator.let_go(leases.pop())

    async def _handle(self, lease: Lease, asked_at: float) -> None:
        try:
            self.operator.note_lease(lease, asked_at)
            await self._handler.handle(lease, self._supply.job(lease.item["n"]))
        finally:
            del lease

    # --- looking around ------------------------------------------------------------------------

    async def _look_around(self) -> None:
        """After the troubles only to count: who changes something keeps the world from its rest."""
        while True:
            await self.process.clock.sleep(self._chance.uniform(0.5, 3.0))
            deeds = (self._count, self._change, self._change, self._sweep)
            troubled = asyncio.get_running_loop().time() < TROUBLE
            with suppress(StoreError, Cut), self._under_way([]):
                await (self._chance.choice(deeds) if troubled else self._count)()

    async def _count(self) -> None:
        stats = await self.operator.attempt(self.queue.stats())
        if stats.unaccounted:
            self._tell(Violation("the account does not balance", "", str(stats)))

    async def _sweep(self) -> None:
        await self.operator.attempt(self.queue.sweep())

    async def _change(self) -> None:
        chance, operator = self._chance, self.operator
        what = chance.choice(("shut", "cancel", "requeue", "peek"))
        if what == "shut":
            await operator.attempt(self.queue.shut(chance.choice("abc"), chance.random()))
        elif what == "peek":
            await operator.attempt(self.queue.peek(5))
        elif what == "cancel":
            name = chance.choice(list(self._supply.jobs))
            operator.recorder.begin("cancel", self.process.name, request=name)
            await operator.attempt(self.queue.cancel([name]))
        else:
            await self._requeue()

    async def _requeue(self) -> None:
        """Those that failed. Poison would only go on killing."""
        letters = [d async for d in self.queue.dead_letters() if d.reason == "failed"]
        for letter in letters:
            self.operator.recorder.begin("requeue", self.process.name, request=letter.item["n"])
        if letters:
            await self.operator.attempt(self.queue.requeue([letter.id for letter in letters]))


def _index_of(one: list[Job], among: list[list[Job]]) -> int:
    return next(at for at, other in enumerate(among) if other is one)


async def _wait_for_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tasks)


def options_of(plan: Plan) -> QueueOptions:
    return QueueOptions(
        max_attempts=MAX_ATTEMPTS,
        max_deaths=MAX_DEATHS,
        retry=FixedDelays(RETRIES),
        lease_ttl=LEASE_TTL,
        op_timeout=2.0,
        capacity=plan.capacity,
        lane_concurrency=plan.lane_concurrency,
    )
