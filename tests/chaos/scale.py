"""A million requests in the queue: what a lease costs then, and a drain with a kill a second."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.conducting import Conductor, conclude, until_sent
from tests.chaos.figures import ENQUEUE_P99, Figures
from tests.chaos.ledger import Call
from tests.chaos.outcome import Outcome
from tests.chaos.stores import open_place
from tests.chaos.tiers import Tier, plan
from tests.chaos.timing import latencies, percentile

_MANY_WORKERS = 1_000
_SAMPLES = 300
_SMALL = 10_000
_TRICKLE = 40.0
# While so many are drained, one at least is brought and timed.
_REQUESTS_A_SAMPLE = 1_000
# One part of the requests is for the thousand workers.
_THEIR_PART = 10
_FASTEST = 1e9
_FLAT = 2.0
_ALONE_P99 = 0.05
_MEASURED = "measured.json"


@dataclass
class Scale:
    """What was measured on the way. Costs are seconds, by size of the queue and of the lease."""

    costs: dict[int, dict[str, float]] = field(default_factory=dict)
    alone: float = 0.0
    together: float = 0.0


class ScaleRun:
    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self.measured = Scale()

    async def run(self) -> float | None:
        """The instant at which all was drained."""
        async with self._conductor.meanwhile(time.monotonic()):
            await self._fill()
            trickle = await self._start_trickle()
            self.measured.alone = await self._one_process()
            drained_at = await self._all_processes(trickle)
            await self._conductor.stop_workers()
        return drained_at

    async def _fill(self) -> None:
        total = self._conductor.tier.requests
        for size in sorted({min(_SMALL, total), max(_SMALL, total // 10), total}):
            await self._bring("filler", 0, share=size, rate=_FASTEST)
            probed = await self._conductor.ask(f"probe{size}", probe=_SAMPLES)
            self.measured.costs[size] = probed
            await self._bring(f"sample{size}", size, share=_SAMPLES, rate=_FASTEST, batch=1)

    async def _bring(self, name: str, number: int, **how: Any) -> None:
        """By one producer, which goes on where the last of its name stopped."""
        orders = self._conductor.producer(number, children=0.0, **how)
        await until_sent(await self._conductor.processes.add("producer", name, orders))

    async def _start_trickle(self) -> asyncio.Task[None]:
        """Somebody brings one at a time, for as long as the others drain."""
        orders = self._conductor.producer(1, children=0.0, share=10**9, rate=_TRICKLE, batch=1)
        slot = await self._conductor.processes.add("producer", "trickle", orders)

        async def until_cancelled() -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            slot.wanted = False
            self._conductor.processes.kill(slot)

        return asyncio.ensure_future(until_cancelled())

    async def _one_process(self) -> float:
        """A thousand workers in one; how many a second."""
        conductor, part = self._conductor, self._conductor.tier.requests // _THEIR_PART
        orders = conductor.worker(0, workers=_MANY_WORKERS)
        slot = await conductor.processes.add("worker", "thousand", orders)
        rate = await self._rate_until(lambda: conductor.tally.counts["complete"] >= part)
        slot.wanted = False
        conductor.processes.stop(slot)
        await slot.gone.wait()
        return rate

    async def _all_processes(self, trickle: asyncio.Task[None]) -> float | None:
        conductor, tier = self._conductor, self._conductor.tier
        for number in range(tier.processes):
            await conductor.processes.add("worker", f"w{number}", conductor.worker(number))
        steps = plan(tier, conductor.seed, has_server=False)["workers"]
        killing = asyncio.ensure_future(conductor.mischief.run(steps, time.monotonic()))
        almost = tier.requests * 0.98
        self.measured.together = await self._rate_until(
            lambda: conductor.tally.counts["complete"] >= almost
        )
        for task in (trickle, killing):
            task.cancel()
            await asyncio.wait([task])
        drained: float | None = await conductor.ask("drained", wait=tier.seconds)
        return drained

    async def _rate_until(self, far_enough: Callable[[], bool]) -> float:
        counts, start = self._conductor.tally.counts, time.monotonic()
        before = counts["complete"]
        async with asyncio.timeout(self._conductor.tier.seconds):
            while not far_enough():  # noqa: ASYNC110 - the ledgers are looked at in turns
                await asyncio.sleep(0.2)
        return (counts["complete"] - before) / (time.monotonic() - start)


async def conduct_scale(tier: Tier, kind: str, seed: int, folder: Path) -> tuple[Outcome, Scale]:
    start = time.monotonic()
    async with open_place(kind, folder, size="8g", proxied=False) as place:
        conductor = Conductor(tier, seed, folder, place)
        zygote = await conductor.processes.zygote.open(place.wrap)
        run = ScaleRun(conductor)
        try:
            await place.open(zygote, 0.0, seed)
            drained_at = await run.run()
            await conductor.ask("picture")
        finally:
            await zygote.close()
    (folder / _MEASURED).write_text(json.dumps(asdict(run.measured)))
    outcome = conclude(conductor, kind, drained_at, time.monotonic() - start)
    return outcome, run.measured


def read_scale(folder: Path) -> Scale:
    told = json.loads((folder / _MEASURED).read_text())
    return Scale(**{**told, "costs": {int(size): cost for size, cost in told["costs"].items()}})


def show_scale(outcome: Outcome, scale: Scale, show: Callable[..., None]) -> None:
    row, store, tier = "TIER-SCALE", outcome.store, outcome.tier
    Figures(outcome, show).all()
    sizes = sorted(scale.costs)
    for lease in ("1", "100"):
        for size in sizes:
            cost = round(scale.costs[size][lease] * 1e3, 3)
            show(row, f"lease of {lease} at {size:,} ({store})", cost, told=True, unit="ms")
        grown = round(scale.costs[sizes[-1]][lease] / scale.costs[sizes[0]][lease], 2)
        what = f"lease of {lease}, {sizes[-1]:,} against {sizes[0]:,} ({store})"
        show(row, what, grown, at_most=_FLAT, unit="×")
    filling, draining = len(sizes) * _SAMPLES, -(-tier.requests // _REQUESTS_A_SAMPLE)
    _show_enqueues(outcome, "while it fills", "sample", show, least=filling, most=_ALONE_P99)
    bound = ENQUEUE_P99[store]
    _show_enqueues(outcome, "while it drains", "trickle", show, least=draining, most=bound)
    show(row, f"a second, 1,000 workers in one process ({store})", round(scale.alone), at_least=1)
    what = f"a second, {tier.processes} processes and a kill a second ({store})"
    show(row, what, round(scale.together), at_least=1)


def _show_enqueues(
    outcome: Outcome, what: str, who: str, show: Callable[..., None], *, least: int, most: float
) -> None:
    row, store = "TIER-SCALE", outcome.store
    took = _of(outcome.records.calls, who)
    show(row, f"enqueues timed {what} ({store})", len(took), at_least=least)
    slow, bound = round(percentile(took, 99), 4), most * outcome.tier.slack
    show(row, f"enqueue p99 {what} ({store})", slow, at_most=bound, unit="s")


def _of(calls: list[Call], name: str) -> list[float]:
    return latencies((call for call in calls if call.process.startswith(name)), "enqueue", ())
