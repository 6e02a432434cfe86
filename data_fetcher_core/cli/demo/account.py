"""What became of every page, drawn up from three sources that know nothing of each other.

The site says which pages there are. The store says which it completed. The ledger, a plain file,
says which were begun, and by which worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from data_fetcher_core.core import QueueStats


class Begun(NamedTuple):
    """One line of the ledger."""

    worker: int
    url: str


class Kill(NamedTuple):
    """A worker that was killed, and how many requests it then held."""

    worker: int
    in_flight: int


class Ledger:
    """The file that workers append to, read on from where it was read to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Begun] = []
        self._read = 0

    def read_on(self) -> int:
        """How many lines there are by now."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read += len(whole + newline)
            self.lines += [_begun(line) for line in whole.decode().splitlines()]
        return len(self.lines)


def _begun(line: str) -> Begun:
    worker, url = line.split(" ", 1)
    return Begun(int(worker), url)


@dataclass(frozen=True, slots=True)
class Account:
    """The sum of a run. It adds up, or says what does not."""

    stats: QueueStats
    kills: Sequence[Kill]
    delivered_again: Counter[int]
    unexplained: int
    completed_twice: int
    strangers: int
    lost: Collection[str]

    @property
    def is_clean(self) -> bool:
        wrong = self.unexplained + self.completed_twice + self.strangers + len(self.lost)
        return wrong == 0 and self.stats.unaccounted == 0

    def rows(self) -> Iterator[tuple[str, int, str]]:
        """Name, figure and remark of each line but the last."""
        stats, held = self.stats, [kill.in_flight for kill in self.kills]
        yield "accepted", stats.enqueued, f"and {stats.duplicates} links to pages already known"
        yield "completed", stats.completed, ""
        yield "dead", stats.dead, ""
        yield "still queued", stats.size + stats.leased, ""
        yield "kills", len(held), f"with {_sum(held)} requests in flight" if held else ""
        again = [self.delivered_again[kill.worker] for kill in self.kills]
        yield "delivered twice", self.delivered_again.total(), _explained(again, self.unexplained)
        yield "completed twice", self.completed_twice, ""
        yield "not of the site", self.strangers, ""


def draw_up(
    *,
    expected: Collection[str],
    stats: QueueStats,
    completed: Sequence[str],
    dead: Collection[str],
    begun: Sequence[Begun],
    kills: Sequence[Kill],
) -> Account:
    """Compare what should be with what is."""
    again = _delivered_again(begun)
    held = {kill.worker: kill.in_flight for kill in kills}
    explained = sum(min(count, held.get(worker, 0)) for worker, count in again.items())
    done = set(completed) & {line.url for line in begun}
    return Account(
        stats=stats,
        kills=kills,
        delivered_again=again,
        unexplained=again.total() - explained,
        completed_twice=len(completed) - len(set(completed)),
        strangers=len(set(completed) - set(expected)),
        lost=set(expected) - done - set(dead),
    )


def _delivered_again(begun: Sequence[Begun]) -> Counter[int]:
    """How many pages each worker began that another one had to begin again."""
    last = {line.url: index for index, line in enumerate(begun)}
    return Counter(line.worker for index, line in enumerate(begun) if index != last[line.url])


def _sum(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return str(numbers[0])
    return f"{' + '.join(map(str, numbers))} = {sum(numbers)}"


def _explained(again: Sequence[int], unexplained: int) -> str:
    if unexplained:
        return f"{unexplained} OF THEM WITHOUT A CAUSE"
    return f"each was in flight at a kill: {_sum(again)}" if sum(again) else ""
