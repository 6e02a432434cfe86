"""A limit that is lowered while requests are in flight holds from the next lease on."""

from __future__ import annotations

import pytest

from data_fetcher_core import Entry
from data_fetcher_core.queue.selection import read_selection
from tests.conftest import MakeQueue
from tests.harness import accounted, client_of, items, places


@pytest.mark.parametrize("lanes", [None, ["h"]])
async def test_a_lowered_limit_is_not_exceeded(
    make_queue: MakeQueue, lanes: list[str] | None
) -> None:
    queue = make_queue()
    await queue.enqueue(range(9), lane="h")
    held = await queue.lease(3)
    lower = make_queue(lane_concurrency=1, update=True)
    for lease in held:
        assert await lower.lease(3, lanes=lanes) == []
        await lease.complete()
    assert items(await lower.lease(3, lanes=lanes)) == [3], "one at a time, from now on"
    assert await places(queue) == {"ready": 5, "leased": 1}
    await accounted(queue)


async def test_a_lowered_limit_of_one_lane_keeps_no_other(make_queue: MakeQueue) -> None:
    queue = make_queue()
    for lane in "ab":
        await queue.enqueue([f"{lane}{n}" for n in range(3)], lane=lane)
    assert items(await queue.lease(2, lanes=["a"])) == ["a0", "a1"]
    lower = make_queue(lane_concurrency=1, update=True)
    assert items(await lower.lease(9)) == ["b0"]
    await queue.close()
    assert items(await lower.lease(9)) == ["a0"]
    await accounted(lower)


async def test_very_many_lanes_above_their_limit_are_passed_in_steps(
    make_queue: MakeQueue,
) -> None:
    queue, lanes = make_queue(), [str(n) for n in range(1_500)]
    for _ in range(2):
        await queue.enqueue([Entry(lane, lane=lane) for lane in lanes])
    held = [*await queue.lease(1_000), *await queue.lease(500)]
    assert len(held) == 1_500
    await queue.enqueue(["free"], lane="free")
    lower = make_queue(lane_concurrency=1, update=True)
    served = await (await client_of(lower)).lease(9, read_selection(None, ()))
    assert (served.leases, served.wait) == ([], 0), "a step looks at a thousand of them at most"
    assert items(await lower.lease(9)) == ["free"]
    assert (await accounted(lower)).leased == 1_501
