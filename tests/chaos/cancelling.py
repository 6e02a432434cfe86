"""Calls that are cancelled now and then, at a random moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from data_fetcher_core.errors import LeaseLost, QueueFull, StoreFull, StoreUnavailable

_OUTCOMES: dict[type[BaseException], str] = {
    LeaseLost: "lost",
    QueueFull: "full",
    StoreFull: "full",
    StoreUnavailable: "unavailable",
}
_LONGEST = 0.02


class Fate:
    """Cancels a share of all calls that are run through it."""

    def __init__(self, share: float, dice: random.Random) -> None:
        self._share = share
        self._dice = dice

    async def run(self, work: Coroutine[Any, Any, Any]) -> tuple[str, Any]:
        """How the call ended, in a word, and what it answered."""
        call = asyncio.ensure_future(work)
        try:
            if self._dice.random() < self._share:
                await asyncio.wait([call], timeout=self._moment())
                call.cancel()
            await asyncio.wait([call])
        except asyncio.CancelledError:
            call.cancel()
            await asyncio.wait([call])
            raise
        return _outcome(call)

    def _moment(self) -> float:
        """Often at once, or while the batch is on its way."""
        return self._dice.choice((0.0, self._dice.uniform(0, 0.002), _LONGEST))


def _outcome(call: asyncio.Future[Any]) -> tuple[str, Any]:
    if call.cancelled():
        return "cancelled", None
    error = call.exception()
    if error is None:
        return "ok", call.result()
    for kind, word in _OUTCOMES.items():
        if isinstance(error, kind):
            return word, None
    raise error
