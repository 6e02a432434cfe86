"""The account of a load under which servers change: what may be forgotten, and what may not."""

from __future__ import annotations

import pytest

from data_fetcher_core.errors import LeaseLost, StoreUnavailable
from data_fetcher_core.queue import KVStoreQueue
from tests.steady_load import Delivery, SteadyLoad


async def test_what_was_only_worked_on_in_the_meantime_may_not_be_forgotten(
    queue: KVStoreQueue,
) -> None:
    load = SteadyLoad(queue)
    load.sent = {"before": 1.0, "worked on": 1.5, "meanwhile": 2.5, "after": 9.0}
    load.deliveries = [Delivery("worked on", b"token", 2.1)]
    load.completed = {"worked on": 2.2}
    assert load.within(2.0, 3.0) == {"worked on", "meanwhile"}
    assert load.sent_within(2.0, 3.0) == {"meanwhile"}


@pytest.mark.parametrize(
    ("refusal", "op_timeout", "early"),
    [(StoreUnavailable("away"), 60.0, 1), (StoreUnavailable("away"), 0.0, 0), (LeaseLost(), 60, 0)],
)
async def test_who_was_failed_before_the_time_was_up_is_counted(
    queue: KVStoreQueue, refusal: Exception, op_timeout: float, early: int
) -> None:
    async def refuse() -> None:
        raise refusal

    load = SteadyLoad(queue)
    await load._try(refuse())
    assert load.refusals.total() == 1
    assert load.failed_early(op_timeout) == early


async def test_what_is_nowhere_any_more_is_forgotten(queue: KVStoreQueue) -> None:
    load = SteadyLoad(queue)
    await queue.enqueue(["kept"])
    load.sent = {"lost": 1.0, "done, and forgotten": 1.0}
    load.completed = {"done, and forgotten": 2.0}
    await load.finish()
    account = await load.account()
    assert account.forgotten == {"lost", "done, and forgotten"}
    assert account.lost == {"lost"}
    assert account.appeared == {"kept"}
