"""How far the crawl is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from data_fetcher_core.core import QueueStats

_LINE_EVERY = 1.0


class Display(Protocol):
    """Shows the state of the queue."""

    def show(self, stats: QueueStats) -> None:
        """What the store says now."""


@contextmanager
def showing(console: Console, total: int) -> Iterator[Display]:
    if not console.is_terminal:
        yield _Lines(console, total)
        return
    columns = TextColumn("crawling"), BarColumn(), MofNCompleteColumn()
    state = TextColumn("{task.fields[state]}", markup=False)
    with Progress(*columns, state, TimeElapsedColumn(), console=console) as progress:
        yield _Bar(progress, total)


class _Bar:
    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._bar = progress.add_task("", total=total, state="")

    def show(self, stats: QueueStats) -> None:
        self._progress.update(self._bar, completed=stats.completed, state=_state(stats))


class _Lines:
    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._shown_at = time.monotonic()
        self._shown = QueueStats()

    def show(self, stats: QueueStats) -> None:
        if stats != self._shown and time.monotonic() - self._shown_at >= _LINE_EVERY:
            self._shown_at, self._shown = time.monotonic(), stats
            self._console.print(f"  {stats.completed} of {self._total} completed, {_state(stats)}")


def _state(stats: QueueStats) -> str:
    return f"{stats.size} waiting, {stats.leased} in flight"
