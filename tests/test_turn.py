"""One at a time, in the order in which they came, however often somebody looks at the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from data_fetcher_core.queue.turn import Turn
from tests.harness import background, spin
from tests.waiting import until

FOREVER = 3600.0


class Line:
    """Those who take turns; ``served`` are their names in order."""

    def __init__(self) -> None:
        self.turn = Turn()
        self.served: list[str] = []

    async def take(self, name: str, patience: Callable[[], float] = lambda: FOREVER) -> bool:
        came = await self.turn.take(patience)
        if came:
            self.served.append(name)
        return came


async def test_whoever_looks_at_the_time_again_and_again_keeps_his_place() -> None:
    line, looks = Line(), 0

    def a_moment_more() -> float:
        nonlocal looks
        looks += 1
        return 0.001

    await line.take("first")
    async with background(line.take("second", a_moment_more)), background(line.take("third")):
        await until(lambda: looks >= 5)
        line.turn.give()
        await spin()
        line.turn.give()
        await spin()
    assert line.served == ["first", "second", "third"]


async def test_nobody_overtakes_whose_turn_it_is() -> None:
    line = Line()
    await line.take("first")
    async with background(line.take("second")):
        await spin()
        line.turn.give()
        async with background(line.take("third")):
            await spin()
            assert line.served == ["first", "second"]
            line.turn.give()
            await spin()
    line.turn.give()
    assert (line.served, line.turn.is_taken) == (["first", "second", "third"], False)


async def test_whose_patience_is_over_is_passed_by() -> None:
    line, patience = Line(), [0.001, 0.0]
    await line.take("first")
    async with background(line.take("third")) as third:
        assert not await line.turn.take(lambda: patience.pop(0))
        line.turn.give()
        assert await third
    assert line.served == ["first", "third"]


async def test_who_has_no_patience_does_not_wait_and_takes_what_is_free() -> None:
    line = Line()
    assert await line.take("first", lambda: 0.0)
    assert not await line.take("second", lambda: 0.0)
    line.turn.give()
    assert await line.take("third", lambda: 0.0)


@pytest.mark.parametrize("given_before", [True, False])
async def test_who_is_cancelled_keeps_no_turn(given_before: bool) -> None:
    line = Line()
    await line.take("first")
    async with background(line.take("second")) as second, background(line.take("third")) as third:
        await spin()
        if given_before:
            line.turn.give()
        second.cancel()
        await asyncio.wait([second])
        if not given_before:
            line.turn.give()
        assert await third
    line.turn.give()
    assert (line.served, line.turn.is_taken) == (["first", "third"], False)
