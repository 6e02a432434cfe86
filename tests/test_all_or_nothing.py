"""What was cancelled happened or it did not, never half."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cancelling import Steps, cancelled_everywhere, steps
from tests.conftest import MakeQueue
from tests.harness import beat_twice, settled
from tests.operations import MANY, Stage

__all__ = ["steps"]


@dataclass(frozen=True)
class Both:
    """What is seen if it did not happen, and what if it did."""

    look: Callable[[Stage], Awaitable[Any]]
    not_done: Any
    done: Any


async def counts(stage: Stage) -> tuple[int, ...]:
    now, then = await stage.queue.stats(), stage.before
    names = ("ready", "delayed", "leased", "dead", "completed", "retried")
    return tuple(getattr(now, name) - getattr(then, name) for name in names)


async def counts_and_state(stage: Stage) -> tuple[Any, ...]:
    results = await stage.queue.results()
    return (*await counts(stage), await stage.queue.checkpoint("cursor"), len(results))


async def leasable(stage: Stage) -> int:
    return len(await stage.queue.lease(9, lanes=["a"]))


ALL_OR_NOTHING = {
    "enqueue": Both(counts, (0, 0, 0, 0, 0, 0), (2, 0, 0, 0, 0, 0)),
    "enqueue with a checkpoint": Both(
        counts_and_state, (0, 0, 0, 0, 0, 0, 0, 1), (3, 0, 0, 0, 0, 0, 1, 1)
    ),
    "complete": Both(counts_and_state, (0, 0, 0, 0, 0, 0, 0, 1), (2, 0, -1, 0, 1, 0, 1, 2)),
    "progress": Both(counts_and_state, (0, 0, 0, 0, 0, 0, 0, 1), (2, 0, -1, 0, 0, 0, 1, 1)),
    "drop": Both(counts_and_state, (0, 0, 0, 0, 0, 0, 0, 1), (0, 0, -1, 0, 0, 0, 1, 1)),
    "fail": Both(counts, (0, 0, 0, 0, 0, 0), (0, 1, -1, 0, 0, 1)),
    "release": Both(counts, (0, 0, 0, 0, 0, 0), (1, 0, -1, 0, 0, 1)),
    "release later": Both(counts, (0, 0, 0, 0, 0, 0), (0, 1, -1, 0, 0, 1)),
    "bury": Both(counts, (0, 0, 0, 0, 0, 0), (0, 0, -1, 1, 0, 0)),
    "give back": Both(counts, (0, 0, 0, 0, 0, 0), (1, 0, -1, 0, 0, 0)),
    "requeue": Both(counts, (0, 0, 0, 0, 0, 0), (2, 0, 0, -2, 0, 0)),
    "purge_dead": Both(counts, (0, 0, 0, 0, 0, 0), (0, 0, 0, -2, 0, 0)),
    "swap_checkpoint": Both(counts_and_state, (0, 0, 0, 0, 0, 0, 0, 1), (0, 0, 0, 0, 0, 0, 1, 1)),
    "limit": Both(leasable, 2, 0),
}


@pytest.mark.parametrize("name", ALL_OR_NOTHING)
async def test_it_happened_or_it_did_not(make_queue: MakeQueue, steps: Steps, name: str) -> None:
    both = ALL_OR_NOTHING[name]
    seen = set()

    async def check(stage: Stage, cancelled: bool) -> None:
        await settled(stage.queue)
        found = await both.look(stage)
        assert found in ((both.not_done, both.done) if cancelled else (both.done,))
        seen.add(found)

    await cancelled_everywhere(make_queue, steps, name, check)
    assert seen == {both.not_done, both.done}


async def test_many_are_taken_in_by_whole_steps(make_queue: MakeQueue, steps: Steps) -> None:
    async def check(stage: Stage, cancelled: bool) -> None:
        await settled(stage.queue)
        new = (await stage.queue.stats()).enqueued - stage.before.enqueued
        assert new in ((0, 1_000, 2_000, MANY) if cancelled else (MANY,))

    await cancelled_everywhere(make_queue, steps, "enqueue many", check)


async def test_dequeue_is_at_most_once(make_queue: MakeQueue, steps: Steps) -> None:
    async def check(stage: Stage, cancelled: bool) -> None:
        await beat_twice(stage.queue)
        ready, _, leased, _, completed, _ = await counts(stage)
        assert (ready, leased, completed) in (
            {(0, 0, 0), (-1, 0, 1), (-2, 0, 2)} if cancelled else {(-2, 0, 2)}
        )

    await cancelled_everywhere(make_queue, steps, "dequeue", check)
