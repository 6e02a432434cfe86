"""Looking at the queue now and then, beside the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from data_fetcher_core.cli.view.tally import Tally
from data_fetcher_core.clock import Clock
from data_fetcher_core.core import QueueStats
from data_fetcher_core.errors import StoreError

Look = Callable[[], Awaitable[QueueStats]]
_EVERY = 1.0


async def keep_looking(look: Look, tally: Tally, clock: Clock, then: Callable[[], None]) -> None:
    """Until cancelled, once a second; ``then`` is called after each look, however it went."""
    while True:
        try:
            tally.looked(await look())
        except StoreError as error:
            tally.could_not_look(str(error))
        then()
        await clock.sleep(_EVERY)
