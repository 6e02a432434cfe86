"""A bad value that is taken comes back as it was, wherever it was put."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from data_fetcher_core.core import Entry
from data_fetcher_core.errors import ConfigurationError, ValidationError
from data_fetcher_core.queue import KVStoreQueue, Lease
from tests.accepted_values import json, may_take
from tests.bad_values import EVERYTHING, Trial, shown
from tests.conftest import MakeQueue, OpenStore
from tests.evidence import Evidence
from tests.harness import accounted

Way = Callable[[KVStoreQueue, Any], Awaitable[Any]]


async def _leased(queue: KVStoreQueue, entry: Entry) -> Lease:
    await queue.clear()
    await queue.enqueue([entry])
    (lease,) = await queue.lease()
    await lease.complete()
    return lease


async def _id(queue: KVStoreQueue, value: Any) -> Any:
    return (await _leased(queue, Entry("item", id=value))).id


async def _lane(queue: KVStoreQueue, value: Any) -> Any:
    return (await _leased(queue, Entry("item", lane=value))).lane


async def _key(queue: KVStoreQueue, value: Any) -> Any:
    return (await _leased(queue, Entry("item", key=value))).key


async def _item(queue: KVStoreQueue, value: Any) -> Any:
    return (await _leased(queue, Entry(value))).item


async def _checkpoint(queue: KVStoreQueue, value: Any) -> Any:
    await queue.enqueue([], checkpoint={"cursor": value})
    return await queue.checkpoint("cursor")


async def _name(queue: KVStoreQueue, value: Any) -> Any:
    await queue.swap_checkpoint(value, None, "under this name")
    return value if await queue.checkpoint(value) == "under this name" else "nowhere"


async def _result(queue: KVStoreQueue, value: Any) -> Any:
    await queue.enqueue(["item"])
    (lease,) = await queue.lease()
    await lease.complete(result=value)
    found = await queue.results()
    await queue.trim_results(found[-1][0] if found else 0)
    return found[-1][1] if found else None


WAYS: dict[str, tuple[Way, str, str]] = {
    "id": (_id, "Entry", "id"),
    "lane": (_lane, "Entry", "lane"),
    "key": (_key, "Entry", "key"),
    "item": (_item, "Entry", "item"),
    "checkpoint": (_checkpoint, "swap_checkpoint", "value"),
    "name": (_name, "checkpoint", "name"),
    "result": (_result, "complete", "result"),
}
# Where nothing is given, something else is there: an id of its own, or no lane.
NOTHING_GIVEN = ("id", "lane", "key", "name")


def _as_json(value: Any) -> Any:
    """As it was, or the nearest to it that JSON has."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, dict):
        return {str(name): one for name, one in value.items()}
    return value if json(value) else str(value)


@pytest.mark.parametrize("place", WAYS)
async def test_what_was_taken_is_what_comes_back(
    make_queue: MakeQueue, place: str, shows: Evidence
) -> None:
    queue, (way, entry, parameter) = make_queue(), WAYS[place]
    taken, wrong = 0, []
    for value in EVERYTHING:
        if value is None and place in NOTHING_GIVEN:
            continue
        try:
            found = await way(queue, value)
        except (ValidationError, ConfigurationError) as error:
            refused = Trial(entry, parameter, value, error)
            wrong += [] if refused.is_right else [str(refused)]
            continue
        taken += 1
        is_same = found == _as_json(value) and may_take(entry, parameter, value)
        wrong += [] if is_same else [f"{shown(value)} came back as {shown(found)}"]
    await accounted(queue)
    shows("F59", "bad values taken as an id, a lane, a key, an item or the like", taken, at_least=9)
    assert not wrong, wrong
    shows("F59", "of these that came back as another", len(wrong), exactly=0)


async def test_what_a_store_took_is_what_comes_back(open_store: OpenStore, shows: Evidence) -> None:
    store, taken, wrong = open_store(), 0, []
    for value in EVERYTHING:
        for key, kept, prefix in ((value, 1, ""), ("key", value, ""), ("key", 1, value)):
            try:
                await store.put(key, kept, prefix=prefix)
            except ValidationError:
                continue
            taken += 1
            found = await store.get(key, "nothing", prefix=prefix)
            wrong += [] if found == _as_json(kept) else [f"{shown(value)}: {shown(found)}"]
    assert not wrong, wrong
    shows("F59", "bad values taken by a store", taken, at_least=100)
