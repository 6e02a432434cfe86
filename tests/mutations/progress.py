"""How far it is, on stderr: a line rewritten on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter

from tests.mutations.verdicts import ALIVE, Verdict
from tests.mutations.workshop import Workshop

_EVERY = 10.0


class Progress:
    def __init__(self) -> None:
        self._started = time.monotonic()
        self._shown = 0.0
        self._rewrites = sys.stderr.isatty()

    def show(self, shop: Workshop) -> None:
        now = time.monotonic()
        if now - self._shown < (1.0 if self._rewrites else _EVERY):
            return
        self._shown = now
        line = f"{now - self._started:5.0f} s  {shop.group.name}: {_so_far(shop)}"
        line = f"\r\033[K{line}" if self._rewrites else f"{line}\n"
        print(line, end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._rewrites:
            print(file=sys.stderr, flush=True)


def _so_far(shop: Workshop) -> str:
    ends = Counter(mutant.verdict for mutant in shop.mutants())
    tried = ends.total() - ends[Verdict.UNTRIED]
    if not tried:
        return "the tests run once unchanged"
    living = sum(ends[verdict] for verdict in ALIVE)
    return f"{tried} of {ends.total()} tried, {living} live on"
