"""How far a run is: a line that is rewritten on a terminal, one every ten seconds elsewhere."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.chaos.ledger import Reader, Records, ledgers

Say = Callable[[str], None]
_GLANCE, _SELDOM = 0.5, 10.0


class Tally:
    """Counts of what the ledgers say so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader = Reader()
        self.counts: Counter[str] = Counter()

    def update(self) -> None:
        self._add(self._reader.news(ledgers(self._folder)))

    def _add(self, news: Records) -> None:
        for call in news.calls:
            if call.outcome == "ok":
                self.counts[call.op] += len(call.names)
            elif call.outcome == "cancelled":
                self.counts["cancelled"] += 1
        self.counts.update(note.kind for note in news.notes)

    def line(self) -> str:
        counts = self.counts
        ended = counts["complete"] + counts["release"] + counts["give_back"]
        died = counts["killed"] + counts["poison"]
        return (
            f"sent {counts['enqueue']:,}  done {counts['complete']:,}  "
            f"delivered and not settled {counts['lease'] - ended:,}  "
            f"cancelled {counts['cancelled']:,}  processes lost {died:,} "
            f"({counts['poison']:,} by poison)"
        )


async def tell(tally: Tally, faults: Counter[str], ends: float, title: str) -> None:
    """For ever."""
    terminal = sys.stderr.isatty()
    said = -_SELDOM
    while True:
        await asyncio.to_thread(tally.update)
        now = time.monotonic()
        left = max(0.0, ends - now)
        done = ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items()))
        line = f"{title}  {tally.line()}  faults: {done or 'none yet'}  {left:.0f} s left"
        if terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        elif now - said >= _SELDOM:
            said = now
            sys.stderr.write(line + "\n")
        await asyncio.sleep(_GLANCE)
