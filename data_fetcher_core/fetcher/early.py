"""More requests at once than one step takes: most of them early, the last with what gave them.

Their keys make that safe: brought again after a crash, they are duplicates. What gave them is in
flight: they enter a full queue as its children do, and one that is being shut down.
"""

from __future__ import annotations

from data_fetcher_core.core import Entry
from data_fetcher_core.fetcher.pausing import Pauses
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.queue.engine import MOST_CHILDREN
from data_fetcher_core.queue.intake import bring


class Early:
    """Brings what is too much for one step."""

    def __init__(self, queue: KVStoreQueue, pauses: Pauses) -> None:
        self._queue = queue
        self._pauses = pauses

    async def bring(self, entries: list[Entry]) -> tuple[list[Entry], int]:
        """What fits into one step is left for it; how many of the others were new.

        Those without keys are among the last.
        """
        if len(entries) <= MOST_CHILDREN:
            return entries, 0
        in_order = sorted(entries, key=lambda entry: entry.key is None)
        early, last = in_order[:-MOST_CHILDREN], in_order[-MOST_CHILDREN:]
        return last, await self.let_in(early)

    async def let_in(self, entries: list[Entry]) -> int:
        """How many were new."""
        client = (await self._queue.open_session()).client
        return await self._pauses.insist(lambda: bring(client, entries))
