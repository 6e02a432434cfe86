"""An operation that is cancelled a step of the loop later each time, till it gets through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from tests.conftest import MakeQueue
from tests.harness import cancelled_after, foreign_tasks
from tests.operations import OPERATIONS, Stage

Steps = Callable[[], Iterator[int]]


@pytest.fixture(params=["some steps", pytest.param("most steps", marks=pytest.mark.slow)])
def steps(request: pytest.FixtureRequest, store_kind: str) -> Steps:
    """After how many steps to cancel. All the first; then ever fewer, for a store that answers
    from a thread or over a network takes thousands.
    """
    many = store_kind == "memory" or request.param == "most steps"
    all_until, growth = (25, 1.4) if many else (5, 2.5)

    def choose() -> Iterator[int]:
        yield from range(all_until)
        number = float(all_until)
        while number < 1e6:
            yield int(number)
            number *= growth

    return choose


async def cancelled_everywhere(
    make_queue: MakeQueue,
    steps: Steps,
    name: str,
    check: Callable[[Stage, bool], Awaitable[None]],
) -> None:
    """Run the operation again and again, cancelled a step later each time, till it gets through."""
    store = make_queue()._store
    for step in steps():
        stage = Stage(make_queue(f"fetch:{step}", store=store))
        await stage.set()
        known = set(asyncio.all_tasks())
        cancelled = await cancelled_after(step, OPERATIONS[name](stage))
        await check(stage, cancelled)
        await stage.queue.close()
        assert foreign_tasks(known) == set(), f"after {step} steps"
        assert (await stage.queue.stats()).leased == 0
        await stage.queue.close()
        if not cancelled:
            return
    raise AssertionError(f"{name} never got through")
