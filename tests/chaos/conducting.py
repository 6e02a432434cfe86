"""One run from its beginning to its account."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.chaos.growing import Size, watch
from tests.chaos.ledger import SUFFIX, Pen
from tests.chaos.mischief import Mischief
from tests.chaos.outcome import Kept, Outcome, keep, read_outcome, read_said
from tests.chaos.processes import Orders, Processes, Slot
from tests.chaos.producer import ProducerOrders
from tests.chaos.progress import Tally, tell
from tests.chaos.stores import Place, open_place
from tests.chaos.tiers import Tier, plan
from tests.chaos.worker import WorkerOrders

_RELEASES = 0.01
_PATIENCE = 60.0
_LOOKS = 300


class Conductor:
    def __init__(self, tier: Tier, seed: int, folder: Path, place: Place) -> None:
        self.tier = tier
        self.seed = seed
        self.folder = folder
        self.place = place
        self.pen = Pen(folder / f"conductor{SUFFIX}", "conductor")
        self.processes = Processes(folder, self.pen, folder / "output")
        self.mischief = Mischief(tier, place, self.processes, self.pen, seed)
        self.tally = Tally(folder)
        self.sizes: list[Size] = []

    async def perform(self) -> float | None:
        """All of it, until nothing is queued any more: the instant of that."""
        start = time.monotonic()
        async with self.meanwhile(start):
            await self._start_processes()
            tracks = plan(self.tier, self.seed, has_server=self.place.has_server)
            async with asyncio.TaskGroup() as group:
                for steps in tracks.values():
                    group.create_task(self.mischief.run(steps, start))
                group.create_task(self._until_all_is_sent())
            drained_at: float | None = await self.ask("drained", wait=_PATIENCE)
            await self.stop_workers()
        return drained_at

    @asynccontextmanager
    async def meanwhile(self, start: float) -> AsyncIterator[None]:
        """The dead are replaced, and it is told how far things are."""
        title = f"{self.tier.name}, {self.place.kind}, seed {self.seed}:"
        ends = start + self.tier.seconds
        telling = tell(self.tally, self.mischief.done, ends, title)
        async with background(self.processes.replace_the_dead(), telling, *self._watching()):
            yield

    def _watching(self) -> list[Coroutine[Any, Any, None]]:
        """Where somebody is spared; producers are, as long as not everybody is killed."""
        if not self.tier.spared:
            return []
        pause = self.tier.seconds / _LOOKS
        return [watch(lambda: self.processes.slots, self.sizes, pause)]

    async def _start_processes(self) -> None:
        for number in range(self.tier.producers):
            await self.processes.add("producer", f"p{number}", self.producer(number))
        for number in range(self.tier.processes):
            spared = number < self.tier.spared
            await self.processes.add("worker", f"w{number}", self.worker(number), spared=spared)

    def worker(self, number: int, **other: Any) -> Orders:
        """What worker processes are told in their turn, but for what is ``other`` with them."""
        tier = self.tier

        def orders(process: str, ledger: str) -> dict[str, Any]:
            usual = asdict(
                WorkerOrders(
                    self.place.url,
                    ledger,
                    process,
                    tier.workers,
                    tier.options,
                    seed=_seed(self.seed, process),
                    cancels=tier.cancels,
                    releases=_RELEASES,
                    stranger=number < tier.strangers,
                )
            )
            return {**usual, **other}

        return orders

    def producer(self, number: int, **other: Any) -> Orders:
        tier = self.tier

        def orders(process: str, ledger: str) -> dict[str, Any]:
            usual = asdict(
                ProducerOrders(
                    self.place.url,
                    ledger,
                    process,
                    number,
                    share=-(-tier.requests // max(tier.producers, 1)),
                    rate=tier.rate / max(tier.producers, 1),
                    options=tier.options,
                    seed=_seed(self.seed, process),
                    shortest_work=tier.shortest_work,
                    longest_work=tier.longest_work,
                    batch=tier.batch,
                    cancels=tier.cancels,
                    poison_every=tier.poison_every,
                )
            )
            return {**usual, **other}

        return orders

    async def _until_all_is_sent(self) -> None:
        async with asyncio.timeout(2 * self.tier.seconds + _PATIENCE):
            for slot in self.processes.of("producer"):
                await until_sent(slot)

    async def stop_workers(self) -> None:
        """In peace; each is noted, and how it ended."""
        for slot in self.processes.of("worker"):
            slot.wanted = False
            self.processes.stop(slot)
        async with asyncio.timeout(_PATIENCE):
            for slot in self.processes.of("worker"):
                if slot.pid is not None:
                    await slot.gone.wait()

    async def ask(self, name: str, **question: Any) -> Any:
        """What the store says itself, by a process of its own."""
        answer = self.folder / f"{name}.json"
        orders = {"url": self.place.url, "answer": str(answer), **question}
        pid = await self.processes.zygote.start("auditor", orders)
        async with asyncio.timeout(10 * _PATIENCE):
            while pid not in self.processes.unclaimed:  # noqa: ASYNC110 - told by its end
                await asyncio.sleep(0.02)
        if self.processes.unclaimed[pid] != 0:
            raise RuntimeError(f"the auditor failed:\n{self.said()}")
        return json.loads(answer.read_text())

    def said(self) -> str:
        return read_said(self.folder)


async def conduct(tier: Tier, kind: str, seed: int, folder: Path) -> Outcome:
    """A whole run in a folder of its own."""
    start = time.monotonic()
    async with open_place(kind, folder) as place:
        conductor = Conductor(tier, seed, folder, place)
        zygote = await conductor.processes.zygote.open(place.wrap)
        try:
            await place.open(zygote, tier.loss, seed)
            drained_at = await conductor.perform()
            if place.network is not None:
                await place.network.weather(loss=0.0)
            await conductor.ask("picture")
        finally:
            await zygote.close()
    return conclude(conductor, kind, drained_at, time.monotonic() - start)


def conclude(conductor: Conductor, kind: str, drained_at: float | None, seconds: float) -> Outcome:
    """What the ledgers do not tell is kept beside them first: an account may fail, or be wrong."""
    conductor.pen.close()
    network = conductor.place.network
    kept = Kept(
        tier=conductor.tier,
        store=kind,
        seed=conductor.seed,
        faults=conductor.mischief.done,
        planned=conductor.mischief.due,
        drained_at=drained_at,
        lost_replies=0 if network is None else network.lost,
        late_replies=0 if network is None else network.late,
        torn_steps=conductor.place.torn,
        crashes=tuple(conductor.processes.crashes),
        seconds=seconds,
        untried=tuple(sorted(conductor.mischief.untried)),
        sizes=tuple(conductor.sizes),
    )
    keep(kept, conductor.folder)
    return read_outcome(conductor.folder)


async def until_sent(slot: Slot) -> None:
    """Until a producer, or who replaced it, has brought all that it was to bring."""
    while slot.wanted:
        await slot.gone.wait()
        await asyncio.sleep(0.02)


@asynccontextmanager
async def background(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """These go on meanwhile, and end with the block; if one fails, so does the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        yield
        for task in tasks:
            task.cancel()


def _seed(seed: int, process: str) -> int:
    """For each process its own, and the same in every run of one seed."""
    return zlib.crc32(f"{seed} {process}".encode())
