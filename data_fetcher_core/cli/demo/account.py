"""What became of every page, from three witnesses that know nothing of each other. Pure.

The server says what it was asked for and how often. The index and the files say what was kept.
The store says what was settled when the crawl was killed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Kill:
    """What was known when the crawl was killed: how often pages were asked for, which were done."""

    pid: int
    asked: Mapping[int, int]
    done: frozenset[int]

    @property
    def in_flight(self) -> frozenset[int]:
        return frozenset(self.asked) - self.done


@dataclass(frozen=True, slots=True)
class Kept:
    """A line of the index, and the digest of the bytes in its file; ``None`` without a file.

    ``page`` is ``None`` if the site has no such page.
    """

    page: int | None
    digest: str | None
    found: str | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """All there is to know when the crawl has ended."""

    digests: Sequence[str]
    kept: Sequence[Kept]
    asked: Mapping[int, int]
    kills: Sequence[Kill] = ()
    strangers: int = 0
    dead: int = 0
    unaccounted: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Account:
    """``in_flight`` has a figure for each kill."""

    pages: int
    indexed: int
    checked: int
    lost: tuple[int, ...]
    twice: tuple[int, ...]
    damaged: tuple[int, ...]
    kills: int
    in_flight: tuple[int, ...]
    fetched_again: int
    finished_again: tuple[int, ...]
    unexplained: tuple[int, ...]
    strangers: int
    dead: int
    unaccounted: int
    seconds: float

    @property
    def wrong(self) -> list[str]:
        """What is not as promised; empty if all is right."""
        return list(_faults(self))

    @property
    def is_right(self) -> bool:
        return not self.wrong

    def to_json(self) -> dict[str, Any]:
        return {"right": self.is_right, "wrong": self.wrong, **asdict(self)}


def draw_up(evidence: Evidence) -> Account:
    """Compare what should be with what is."""
    lines = Counter(kept.page for kept in evidence.kept if kept.page is not None)
    good = {kept.page for kept in evidence.kept if _is_good(kept, evidence.digests)}
    again = {page: asked - 1 for page, asked in evidence.asked.items() if asked > 1}
    flights = Counter(page for kill in evidence.kills for page in kill.in_flight)
    return Account(
        pages=len(evidence.digests),
        indexed=len(evidence.kept),
        checked=len(good),
        lost=tuple(page for page in range(len(evidence.digests)) if page not in lines),
        twice=tuple(page for page, number in lines.items() if number > 1),
        damaged=tuple(page for page in lines if page not in good),
        kills=len(evidence.kills),
        in_flight=tuple(len(kill.in_flight) for kill in evidence.kills),
        fetched_again=sum(again.values()),
        finished_again=tuple(sorted(_finished_again(evidence))),
        unexplained=tuple(page for page, number in again.items() if number > flights[page]),
        strangers=evidence.strangers + sum(kept.page is None for kept in evidence.kept),
        dead=evidence.dead,
        unaccounted=evidence.unaccounted,
        seconds=round(evidence.seconds, 3),
    )


def _is_good(kept: Kept, digests: Sequence[str]) -> bool:
    """The site, the index and the file agree."""
    if kept.page is None or kept.page >= len(digests):
        return False
    return digests[kept.page] == kept.digest == kept.found


def _finished_again(evidence: Evidence) -> set[int]:
    """Pages that were done at a kill, and asked for after it."""
    return {
        page
        for kill in evidence.kills
        for page in kill.done
        if evidence.asked.get(page, 0) > kill.asked.get(page, 0)
    }


def _faults(account: Account) -> Iterator[str]:
    listed = {
        "lost": account.lost,
        "in the index twice": account.twice,
        "not stored as the site serves them": account.damaged,
        "finished, and fetched again": account.finished_again,
        "fetched again without having been in flight": account.unexplained,
    }
    for what, pages in listed.items():
        if pages:
            yield f"{len(pages)} {what}: {_some(pages)}"
    if account.strangers:
        yield f"{account.strangers} requests or lines of the index that are no page of the site"
    if account.dead:
        yield f"{account.dead} dead letters, where no page fails"
    if account.unaccounted:
        yield f"the store's counts do not add up: {account.unaccounted} unaccounted for"


def _some(pages: Sequence[int]) -> str:
    shown = ", ".join(f"page {page}" for page in pages[:_SHOWN])
    return f"{shown}, …" if len(pages) > _SHOWN else shown
