"""One request that can wait, and more urgent ones behind it than can be served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from data_fetcher_core import Priority
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.testing import ManualClock
from tests.crowds.turns import BATCH
from tests.evidence import Evidence

FAULT = "F50"
AGEING_STEP = 10.0
# Of the most urgent ones that age before the least urgent one.
HEAD_START = 4 * AGEING_STEP
_MOST_SECONDS = 1_000


@dataclass(frozen=True)
class Flood:
    """So many come and are served in a second of the clock."""

    arriving: int
    serving: int
    came: int
    waited: float
    unfair: int
    """Served before the one that waits, though they came after their head start was used up."""

    @property
    def longest_wait(self) -> float:
        """Those with a head start come first; then it is its turn, within a second."""
        return HEAD_START * self.arriving / self.serving + 1.0


async def flood(
    queue: KVStoreQueue,
    clock: ManualClock,
    arriving: int,
    serving: int,
    tell: Callable[[str], None] = lambda _: None,
) -> Flood:
    """The queue must have been opened with ``ageing_step=AGEING_STEP``. Each is its instant."""
    began = clock.store_now()
    await queue.enqueue([began], priority=Priority.VERY_LOW)
    came = unfair = 0
    for second in range(1, _MOST_SECONDS):
        clock.advance(1.0)
        await queue.enqueue([clock.store_now()] * arriving, priority=Priority.VERY_HIGH)
        came += arriving
        served = await _serve(queue, serving)
        before = served[: served.index(began)] if began in served else served
        unfair += sum(instant > began + HEAD_START for instant in before)
        tell(f"flood: {came:,} came in {second} s of the clock")
        if began in served:
            return Flood(arriving, serving, came, clock.store_now() - began, unfair)
    raise AssertionError(f"not served within {_MOST_SECONDS} s")


async def _serve(queue: KVStoreQueue, count: int) -> list[float]:
    served: list[float] = []
    while len(served) < count:
        served += await queue.dequeue(min(BATCH, count - len(served)))
    return served


def show_flood(shows: Evidence, seen: Flood, least: int, where: str = "") -> None:
    shows(FAULT, f"urgent requests in the flood{where}", seen.came, at_least=least)
    late = f"served before one that waits, after their head start{where}"
    shows(FAULT, late, seen.unfair, exactly=0)
    what, most = f"seconds of the clock that it waited{where}", round(seen.longest_wait, 1)
    shows(FAULT, what, round(seen.waited, 1), at_most=most, unit="s")
