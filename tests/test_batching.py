"""Coalescing by itself: one batch in flight, and what is asked meanwhile together as the next."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from data_fetcher_core.errors import StoreError, StoreUnavailable
from data_fetcher_core.queue.batching import Batcher, copy_error
from data_fetcher_core.queue.tasks import OwnedTasks
from tests.harness import spin


class Post:
    """Takes batches, and answers each when it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.answers: asyncio.Queue[BaseException | None] = asyncio.Queue()
        self.abandoned: list[tuple[int, str]] = []

    async def send(self, items: Sequence[int]) -> list[str]:
        self.batches.append(list(items))
        error = await self.answers.get()
        if error is not None:
            raise error
        return [f"answer {item}" for item in items]


@pytest.fixture
async def tasks() -> AsyncIterator[OwnedTasks]:
    owned = OwnedTasks()
    yield owned
    await owned.cancel()


Make = Callable[..., tuple[Post, Batcher[int, str]]]


@pytest.fixture
def make(tasks: OwnedTasks) -> Make:
    def made(most: int = 100, **more: Any) -> tuple[Post, Batcher[int, str]]:
        post = Post()
        note = lambda item, answer: post.abandoned.append((item, answer))  # noqa: E731
        return post, Batcher("test", post.send, tasks, most=most, abandon=note, **more)

    return made


async def test_what_is_asked_meanwhile_goes_together(make: Make) -> None:
    post, batcher = make()
    first = batcher.submit(1)
    await spin()
    assert batcher.running
    others = [batcher.submit(item) for item in (2, 3)]
    await spin()
    assert post.batches == [[1]], "one batch in flight"
    post.answers.put_nowait(None)
    assert await first == "answer 1"
    await spin()
    assert post.batches == [[1], [2, 3]]
    post.answers.put_nowait(None)
    assert await asyncio.gather(*others) == ["answer 2", "answer 3"]
    await spin()
    assert not batcher.running
    last = batcher.submit(4)
    post.answers.put_nowait(None)
    assert await last == "answer 4"


async def test_a_batch_weighs_at_most_so_much_unless_one_alone_is_heavier(make: Make) -> None:
    post, batcher = make(most=5, weigh=lambda item: item)
    outcomes = [batcher.submit(item) for item in (2, 3, 1, 9, 5, 1)]
    for _ in range(5):
        post.answers.put_nowait(None)
    await asyncio.gather(*outcomes)
    assert post.batches == [[2, 3], [1], [9], [5], [1]]


async def test_each_of_a_batch_gets_an_error_of_its_own(make: Make) -> None:
    post, batcher = make()
    outcomes = [batcher.submit(item) for item in (1, 2)]
    await spin()
    later = batcher.submit(3)
    error = StoreError("broken")
    post.answers.put_nowait(error)
    raised = await asyncio.gather(*outcomes, return_exceptions=True)
    assert [(type(one), str(one)) for one in raised] == [(StoreError, "broken")] * 2
    assert len({id(one) for one in (*raised, error)}) == 3
    post.answers.put_nowait(None)
    assert await later == "answer 3", "who came meanwhile is not concerned"


@pytest.mark.parametrize("kind", [StoreUnavailable, StoreError])
async def test_an_error_that_somebody_keeps_does_not_keep_who_asked(
    make: Make, kind: type[Exception]
) -> None:
    """Nobody waits for the garbage collector: an idle process may not run it for hours."""
    post, batcher = make()
    kept = kind("kept by the store")

    class Lease: ...

    async def ask() -> weakref.ref[Lease]:
        lease = Lease()
        with suppress(StoreError):
            await batcher.submit(1)
        return weakref.ref(lease)

    post.answers.put_nowait(kept)
    gc.disable()
    try:
        settled = await ask()
        await spin()
        assert settled() is None
    finally:
        gc.enable()


async def test_who_came_while_the_store_was_away_waits_no_longer(make: Make) -> None:
    post, batcher = make()
    first = batcher.submit(1)
    await spin()
    second = batcher.submit(2)
    post.answers.put_nowait(StoreUnavailable("away"))
    for outcome in (first, second):
        with pytest.raises(StoreUnavailable, match="away"):
            await outcome
    await spin()
    assert post.batches == [[1]]
    assert not batcher.running


async def test_who_leaves_before_it_is_sent_is_not_sent(make: Make) -> None:
    post, batcher = make()
    batcher.submit(1)
    await spin()
    waiting = [batcher.submit(item) for item in (2, 3, 4)]
    waiting[0].cancel()
    waiting[2].cancel()
    post.answers.put_nowait(None)
    post.answers.put_nowait(None)
    assert await waiting[1] == "answer 3"
    assert post.batches == [[1], [3]]
    assert post.abandoned == []


async def test_what_nobody_waits_for_any_more_is_undone(make: Make) -> None:
    post, batcher = make()
    outcomes = [batcher.submit(item) for item in (1, 2)]
    await spin()
    outcomes[0].cancel()
    post.answers.put_nowait(None)
    assert await outcomes[1] == "answer 2"
    assert post.abandoned == [(1, "answer 1")]


async def test_who_waits_when_all_is_stopped_is_cancelled(make: Make, tasks: OwnedTasks) -> None:
    _, batcher = make()
    first = batcher.submit(1)
    await spin()
    second = batcher.submit(2)
    await tasks.cancel()
    assert first.cancelled()
    assert second.cancelled()
    assert not batcher.running


def test_an_error_is_copied_with_all_that_it_holds() -> None:
    class Detailed(StoreError):
        def __init__(self, number: int) -> None:
            super().__init__(f"number {number}")
            self.number = number

    error = Detailed(5)
    error.__cause__ = KeyError("why")
    copied = copy_error(error)
    assert copied is not error
    assert isinstance(copied, Detailed)
    assert (str(copied), copied.number) == ("number 5", 5)
    assert copied.__cause__ is error.__cause__
    assert copied.__suppress_context__
