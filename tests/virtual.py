"""A run in virtual time: whenever nobody can go on, the clock jumps to whoever is due next."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from data_fetcher_core.testing import ManualClock
from tests.harness import spin

T = TypeVar("T")


async def in_virtual_time(clock: ManualClock, *running: Coroutine[Any, Any, T]) -> list[T]:
    """Over the memory store only: others do things that the clock knows nothing of."""
    tasks = [asyncio.ensure_future(one) for one in running]
    try:
        while not all(task.done() for task in tasks):
            await spin(60)
            if clock._sleepers:
                due = clock._sleepers[0][0] / 1e6
                # At least a little: 0.1 + 0.2 is later than 0.3 for who compares them.
                clock.advance(max(1e-6, due - clock.monotonic()))
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
