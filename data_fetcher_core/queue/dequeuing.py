"""Taking requests out for good: leased, and completed at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from data_fetcher_core.errors import LeaseLost
from data_fetcher_core.queue.lease import Lease, LeaseState


async def take_out(
    leases: Sequence[Lease], give_back: Callable[[Sequence[Lease]], object]
) -> list[Any]:
    """The items of those that could be completed; somebody else has those that are lost."""
    completing = asyncio.gather(*(lease.complete() for lease in leases), return_exceptions=True)
    try:
        outcomes = await completing
    except asyncio.CancelledError:
        # What was not sent yet is nobody's; a traceback keeps it alive, and so leased.
        give_back(leases)
        raise
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, LeaseLost):
            raise outcome
    return [lease.item for lease in leases if lease.state is LeaseState.SETTLED]
