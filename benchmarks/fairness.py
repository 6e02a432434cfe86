"""A thousand lanes, and one of them wants nearly everything: how are the others served?"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.percentiles import percentile

GREEDY = 0


def arrivals(given: dict[str, Any]) -> list[int]:
    """The lane of each request as they come in, all mixed; lane 0 has its share of all."""
    greedy = round(given["requests"] * given["share"])
    others = [1 + n % (given["lanes"] - 1) for n in range(given["requests"] - greedy)]
    lanes = [GREEDY] * greedy + others
    random.Random(1).shuffle(lanes)
    return lanes


class Served:
    """Who was served, in which order and when."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._begin = time.perf_counter()
        self._lanes: list[int] = []
        self._times: list[float] = []

    async def work(self, lane: int) -> None:
        self._lanes.append(lane)
        self._times.append(time.perf_counter() - self._begin)
        await asyncio.sleep(self._given["work_ms"] / 1e3)

    def metrics(self) -> dict[str, float]:
        assert len(self._lanes) == self._given["requests"], f"{len(self._lanes)} were served"
        places = [at for at, lane in enumerate(self._lanes) if lane != GREEDY]
        seconds = [self._times[at] for at in places]
        return {
            "wait_p50_leases": percentile(places, 50),
            "wait_p99_leases": percentile(places, 99),
            "wait_p50_s": percentile(seconds, 50),
            "wait_p99_s": percentile(seconds, 99),
            "jain": fairness_index(self._lanes, self._given["lanes"]),
        }


def fairness_index(served: Sequence[int], lanes: int) -> float:
    """Jain's index of what each lane got for as long as all of them could have got the same: 1 if
    they did, 1/lanes if one got everything."""
    least = min(Counter(served).values())
    shares = Counter(served[: least * lanes]).values()
    return sum(shares) ** 2 / (lanes * sum(share**2 for share in shares))
