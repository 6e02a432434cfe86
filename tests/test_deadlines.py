"""Time-outs: what takes too long is ended, but not for what the loop has slept through."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

import pytest

from data_fetcher_core.deadlines import Deadline, Deadlines, strictly, within

Begin = Callable[[], Deadline]


def _shared(seconds: float) -> Begin:
    return Deadlines(seconds).begin


def _alone(seconds: float) -> Begin:
    return lambda: within(seconds)


def _strictly(seconds: float) -> Begin:
    return lambda: strictly(seconds)


each_kind = pytest.mark.parametrize("of", [_shared, _alone])
any_kind = pytest.mark.parametrize("of", [_shared, _alone, _strictly])


async def wait_within(begin: Begin, seconds: float) -> str:
    try:
        with begin():
            await asyncio.sleep(seconds)
    except TimeoutError:
        return "late"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    return "done"


@any_kind
async def test_what_takes_too_long_is_ended(of: Callable[[float], Begin]) -> None:
    begin = of(0.5)
    async with asyncio.timeout(20.0):
        waits = [0.0, 30.0, 0.15, 30.0, 0.0]
        ends = await asyncio.gather(*(wait_within(begin, wait) for wait in waits))
        assert ends == ["done", "late", "done", "late", "done"]
        assert await wait_within(begin, 30.0) == "late"
        assert await wait_within(begin, 0.0) == "done"


@any_kind
async def test_who_was_in_time_may_go_on_for_longer(of: Callable[[float], Begin]) -> None:
    with of(0.05)():
        await asyncio.sleep(0.0)
    await asyncio.sleep(0.15)


@any_kind
async def test_it_is_for_a_task(of: Callable[[float], Begin]) -> None:
    loop = asyncio.get_running_loop()
    tried: asyncio.Future[None] = loop.create_future()

    def enter() -> None:
        with pytest.raises(RuntimeError, match=r"^a deadline can only begin inside a task$"):
            of(1.0)().__enter__()
        tried.set_result(None)

    loop.call_soon(enter)
    await tried


async def test_those_who_began_later_end_later() -> None:
    begin = Deadlines(0.1).begin
    ended: list[int] = []

    async def wait(number: int) -> None:
        await asyncio.sleep(number * 0.02)
        assert await wait_within(begin, 30.0) == "late"
        ended.append(number)

    async with asyncio.timeout(2.0):
        await asyncio.gather(*map(wait, range(5)))
    assert ended == [0, 1, 2, 3, 4]


@any_kind
async def test_who_is_cancelled_is_not_late(of: Callable[[float], Begin]) -> None:
    task = asyncio.ensure_future(wait_within(of(30.0), 30.0))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@any_kind
async def test_who_is_late_and_cancelled_stays_cancelled(of: Callable[[float], Begin]) -> None:
    deadline = of(30.0)()
    entered = asyncio.Event()

    async def wait() -> None:
        with deadline:
            entered.set()
            await asyncio.sleep(30.0)

    task = asyncio.ensure_future(wait())
    await entered.wait()
    task.cancel()
    deadline.expire()
    with pytest.raises(asyncio.CancelledError):
        await task


@any_kind
async def test_an_error_of_its_own_is_not_late(of: Callable[[float], Begin]) -> None:
    begin = of(30.0)
    with pytest.raises(KeyError), begin():
        raise KeyError
    with pytest.raises(TimeoutError), begin():
        raise TimeoutError


@any_kind
def test_deadlines_live_through_several_loops(of: Callable[[float], Begin]) -> None:
    begin = of(0.05)
    for _ in range(2):
        assert asyncio.run(wait_within(begin, 0.0)) == "done"
        assert asyncio.run(asyncio.wait_for(wait_within(begin, 30.0), 2.0)) == "late"


async def answer_that_comes_while_the_loop_stands_still(deadline: Deadline, still: float) -> bytes:
    near, far = socket.socketpair()
    near.setblocking(False)

    def answer_and_block() -> None:
        far.send(b"there")
        time.sleep(still)

    loop = asyncio.get_running_loop()
    with near, far, deadline:
        loop.call_soon(answer_and_block)
        return await loop.sock_recv(near, 8)


@each_kind
@pytest.mark.parametrize("still", [0.21, 0.3, 0.8])
async def test_what_came_while_the_loop_stood_still_is_read(
    of: Callable[[float], Begin], still: float
) -> None:
    """However short before or long after the end the loop runs again."""
    assert await answer_that_comes_while_the_loop_stands_still(of(0.2)(), still) == b"there"


async def test_what_must_not_be_done_late_is_not() -> None:
    with pytest.raises(TimeoutError):
        await answer_that_comes_while_the_loop_stands_still(strictly(0.2), 0.3)
    assert await answer_that_comes_while_the_loop_stands_still(strictly(2.0), 0.0) == b"there"


@any_kind
async def test_who_still_waits_then_is_late_soon(of: Callable[[float], Begin]) -> None:
    begin = of(0.1)
    asyncio.get_running_loop().call_soon(time.sleep, 0.3)
    async with asyncio.timeout(2.0):
        assert await wait_within(begin, 30.0) == "late"


@any_kind
async def test_a_loop_that_is_always_late_ends_its_waits_too(of: Callable[[float], Begin]) -> None:
    """A moment more is given once: what never comes is not waited for as long as it is busy."""
    over = False

    def be_busy() -> None:
        time.sleep(0.1)
        if not over:
            loop.call_soon(be_busy)

    loop = asyncio.get_running_loop()
    loop.call_soon(be_busy)
    began = time.monotonic()
    try:
        assert await wait_within(of(0.05), 30.0) == "late"
    finally:
        over = True
    assert time.monotonic() - began < 3.0


class Bell(Deadline):
    """One that tells whether it was rung."""

    rung = False

    def expire(self) -> None:
        self.rung = True


async def test_who_was_in_time_leaves_no_timer() -> None:
    """There is one around every batch: thousands a second, each for ten seconds."""
    bell = Bell(within(0.02)._owner)
    with bell:
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    assert not bell.rung
