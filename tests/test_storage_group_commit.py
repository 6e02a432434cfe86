"""Many who commit at one moment: one hop, and nobody waits for who has gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from data_fetcher_core.errors import StorageError
from data_fetcher_core.storage.group_commit import GroupCommit
from data_fetcher_core.storage.threads import Threads
from tests.waiting import until


class Held:
    """Work that stays in its thread until it is let out."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.out = threading.Event()

    def __call__(self, items: list[int]) -> list[int | Exception]:
        self.batches.append(items)
        assert self.out.wait(20)
        return [StorageError(f"{item}") if item < 0 else 10 * item for item in items]


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads()
    yield threads
    threads.close()


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.out.set()


async def test_what_comes_meanwhile_goes_together(threads: Threads, held: Held) -> None:
    group: GroupCommit[int, int] = GroupCommit(threads, held, most=3)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(group.submit(1))
        await until(lambda: held.batches == [[1]])
        others = [tasks.create_task(group.submit(number)) for number in range(2, 7)]
        await asyncio.sleep(0)
        held.out.set()
    assert held.batches == [[1], [2, 3, 4], [5, 6]]
    assert [task.result() for task in [first, *others]] == [10, 20, 30, 40, 50, 60]


async def test_who_fails_fails_alone(threads: Threads, held: Held) -> None:
    held.out.set()
    group: GroupCommit[int, int] = GroupCommit(threads, held, most=9)
    outcomes = await asyncio.gather(*map(group.submit, [1, -2, 3]), return_exceptions=True)
    assert [outcomes[0], outcomes[2]] == [10, 30]
    assert isinstance(outcomes[1], StorageError)


async def test_a_batch_that_fails_fails_for_each(threads: Threads) -> None:
    def fail(items: list[int]) -> list[int | Exception]:
        raise StorageError("gone")

    group: GroupCommit[int, int] = GroupCommit(threads, fail, most=9)
    outcomes = await asyncio.gather(*map(group.submit, [1, 2]), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["gone", "gone"]
    assert outcomes[0] is not outcomes[1]


async def test_cancelled_before_its_turn_it_is_not_touched(threads: Threads, held: Held) -> None:
    group: GroupCommit[int, int] = GroupCommit(threads, held, most=9)
    first = asyncio.create_task(group.submit(1))
    await until(lambda: held.batches == [[1]])
    second, third = (asyncio.create_task(group.submit(number)) for number in (2, 3))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    assert second.cancelled()
    held.out.set()
    assert (await first, await third) == (10, 30)
    assert held.batches == [[1], [3]]


@pytest.mark.parametrize("times", [1, 3])
async def test_cancelled_in_its_turn_it_waits_for_the_end(
    threads: Threads, held: Held, times: int
) -> None:
    group: GroupCommit[int, int] = GroupCommit(threads, held, most=9)
    leader, follower = (asyncio.create_task(group.submit(number)) for number in (1, 2))
    await until(lambda: held.batches == [[1, 2]])
    for _ in range(times):
        leader.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not leader.done()
    held.out.set()
    assert await follower == 20
    with pytest.raises(asyncio.CancelledError):
        await leader


async def test_cancelled_by_a_scope_it_waits_as_well(threads: Threads, held: Held) -> None:
    group: GroupCommit[int, int] = GroupCommit(threads, held, most=9)
    answered = False

    async def commit() -> None:
        nonlocal answered
        with anyio.move_on_after(0):
            await group.submit(1)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await group.submit(2)
        answered = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(commit)
        await asyncio.sleep(0)
        held.out.set()
    assert answered
    await group.finish()


async def test_all_are_cancelled(threads: Threads, held: Held) -> None:
    group: GroupCommit[int, int] = GroupCommit(threads, held, most=9)
    tasks = [asyncio.create_task(group.submit(number)) for number in range(3)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    held.out.set()
    await asyncio.wait(tasks)
    assert await group.submit(4) == 40


def test_a_loop_that_ended_in_the_middle_is_forgotten(threads: Threads, held: Held) -> None:
    group: GroupCommit[int, int] = GroupCommit(threads, held, most=9)

    async def begin() -> None:
        never_finished = group.submit(1)
        never_finished.send(None)
        never_finished.close()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    held.out.set()
    assert asyncio.run(group.submit(2)) == 20


async def test_no_thread_can_be_had(
    threads: Threads, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.out.set()
    group: GroupCommit[int, int] = GroupCommit(threads, held, most=9)

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(ThreadPoolExecutor, "submit", refuse)
        with pytest.raises(StorageError, match="no thread"):
            await group.submit(1)
    assert await group.submit(2) == 20


async def test_a_thread_is_waited_for_by_who_is_cancelled(threads: Threads) -> None:
    entered, out = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        assert out.wait(20)

    task = asyncio.create_task(threads.run(work))
    await until(entered.is_set)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not task.done()
    out.set()
    with pytest.raises(asyncio.CancelledError):
        await task
