"""What the tests of the scripted engine share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from redis import Redis

from data_fetcher_core.clock import SYSTEM_CLOCK, Clock
from data_fetcher_core.kv_store.redis import RedisStore
from data_fetcher_core.queue.engine import Addition, Grant, Move, NewRequest, Op, Settlement
from data_fetcher_core.queue.identity import seen_from_key
from data_fetcher_core.queue.records import Record, decode
from data_fetcher_core.queue.scripted_engine import ScriptedEngine
from data_fetcher_core.testing.clock import ManualClock

NAMESPACE = "fetch:run"
START = b"{fetch:run}:"
ME = b"me"
# A consumer begins to count at the store's instant.
FIRST_BEAT = ManualClock().microseconds


class Numbered:
    """Operations of one client, each with a number of its own."""

    def __init__(self, client: bytes = ME) -> None:
        self.client = client
        self.number = 0

    def __call__(self) -> Op:
        self.number += 1
        return Op(self.client, self.number)


@asynccontextmanager
async def opened(
    url: str, clock: Clock = SYSTEM_CLOCK, namespace: str = NAMESPACE, **options: int
) -> AsyncIterator[ScriptedEngine]:
    """An engine on a store of its own, with its run opened."""
    store = RedisStore(url)
    engine = ScriptedEngine(store, namespace, clock)
    try:
        await engine.open({name: str(value) for name, value in options.items()}, ())
        yield engine
    finally:
        await store.close()


def new(identity: str, **what: Any) -> NewRequest:
    """A request; ``lane``, ``key``, ``priority``, ``body``, ``delay``, ``expires_in``, …"""
    record = Record(
        id=identity.encode(),
        lane=what.pop("lane", "").encode(),
        key=what.pop("key", "").encode(),
        priority=what.pop("priority", 3),
        body=what.pop("body", b"body of " + identity.encode()),
    )
    seen = seen_from_key(record.key) if record.key else b""
    return NewRequest(record.id, record.encode(), seen=seen, **what)


async def add(engine: ScriptedEngine, op: Op, *requests: NewRequest) -> None:
    await engine.add(op, [Addition(requests)])


async def clear(engine: ScriptedEngine, next_op: Callable[[], Op]) -> list[int]:
    """To its end; how many each step dropped."""
    cleared = await engine.clear(next_op())
    dropped = [cleared.done]
    while cleared.place is not None:
        cleared = await engine.clear(next_op(), cleared.place)
        dropped.append(cleared.done)
    return dropped


def ids(grants: Iterable[Grant]) -> list[str]:
    return [decode(grant.record).id.decode() for grant in grants]


def complete(grant: Grant, **what: Any) -> Settlement:
    return Settlement(grant.token, Move.COMPLETE, **what)


def contents(client: Redis) -> dict[Any, Any]:
    """All that the server holds, byte by byte."""
    return {key: client.dump(key) for key in client.scan_iter(count=1000)}
