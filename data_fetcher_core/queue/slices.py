"""Verbs that go on, one bounded step after another, until the store says that there is no more."""

from __future__ import annotations

from functools import partial

from data_fetcher_core.queue.client import Client
from data_fetcher_core.queue.engine import Cleared, Slice


async def purge(client: Client, older_than: int) -> int:
    """How many dead letters went that were buried at least so long ago."""
    gone, purged = 0, Slice(0, more=True)
    while purged.more:
        purged = await client.ask("purge", partial(client.engine.purge, older_than=older_than))
        gone += purged.done
    return gone


async def clear(client: Client) -> int:
    """How many requests went; the keys that were seen are forgotten."""
    gone, cleared = 0, Cleared(0, b"")
    while (place := cleared.place) is not None:
        cleared = await client.ask("clear", partial(client.engine.clear, place=place))
        gone += cleared.done
    return gone
