"""Many who need the same thing at once get what one of them did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.queue.together import Together
from tests.harness import spin


class Work:
    """Done when it is let, and counted."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        await self.may_end.wait()
        return self.begun


async def three(
    together: Together[int], work: Callable[[], Awaitable[int]]
) -> list[asyncio.Task[int]]:
    asking = [asyncio.ensure_future(together.run(work)) for _ in range(3)]
    await spin()
    return asking


async def test_all_get_what_the_first_one_did() -> None:
    together: Together[int] = Together()
    work = Work()
    asking = await three(together, work)
    assert together.anybody
    work.may_end.set()
    assert await asyncio.gather(*asking) == [1, 1, 1]
    assert not together.anybody


async def test_all_hear_of_its_failure_and_each_has_an_error_of_its_own() -> None:
    together: Together[int] = Together()
    gate = asyncio.Event()

    async def fail() -> int:
        await gate.wait()
        raise StoreUnavailable("away")

    asking = await three(together, fail)
    gate.set()
    errors = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(error) for error in errors] == ["away"] * 3
    assert len({id(error) for error in errors}) == 3
    assert not together.anybody


async def test_the_next_one_does_it_where_the_first_gives_up() -> None:
    together: Together[int] = Together()
    work = Work()
    first, *others = await three(together, work)
    first.cancel()
    await asyncio.wait([first])
    assert together.anybody
    await spin()
    work.may_end.set()
    assert await asyncio.gather(*others) == [2, 2]
    with pytest.raises(asyncio.CancelledError):
        first.result()
