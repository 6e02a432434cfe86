"""The account of a run: accepted = settled + dead + still queued, from ledgers and the store.

What a producer was told is kept must be somewhere; what is somewhere must have been sent. Calls
whose outcome nobody knows (their process died, they were cancelled, the store did not answer) may
have happened or not, and are counted as such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.burying import Burials
from tests.chaos.explaining import (
    Chronicle,
    Delivery,
    Repetition,
    deliveries_of,
    repeated_effects,
    repetitions,
)
from tests.chaos.ledger import DIED, Call, Records
from tests.chaos.names import children_of, is_poison, parent_of

# Whoever hears one of these does not know whether it happened.
DOUBT = frozenset({DIED, "cancelled", "unavailable"})
_SHOWN = 5


@dataclass(frozen=True)
class Picture:
    """What the store itself says at the end."""

    completed: tuple[str, ...]
    dead: tuple[tuple[str, str, int], ...]
    queued: tuple[str, ...] = ()
    stats: Mapping[str, int] = field(default_factory=dict)
    miscounted: Mapping[str, Any] = field(default_factory=dict)
    # When the dead were buried, on the clock of the ledgers.
    buried_at: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Account:
    accepted: int = 0
    unknown: int = 0
    unknown_kept: int = 0
    settled: int = 0
    dead: int = 0
    queued: int = 0
    deliveries: int = 0
    repeated_effects: int = 0
    # Buried, though not poison, because a kill from outside met them when they were held alone.
    unlucky: int = 0
    repetitions: list[Repetition] = field(default_factory=list)
    lies: dict[str, list[str]] = field(default_factory=dict)

    @property
    def unexplained(self) -> list[Repetition]:
        return [one for one in self.repetitions if not one.explained]

    @property
    def causes(self) -> Counter[str]:
        return Counter(one.cause for one in self.repetitions)

    def count(self, lie: str) -> int:
        return len(self.lies.get(lie, ()))

    def balance(self) -> int:
        """Accepted, with those of unknown fate that turned up, minus all that are somewhere."""
        here = self.settled + self.dead + self.queued
        return self.accepted + self.unknown_kept - here

    def problems(self) -> list[str]:
        """Everything that may not be, in words; nothing if the account is closed."""
        told = [_tell(lie, names) for lie, names in self.lies.items() if names]
        told += [f"{one.name} in {one.process}: {one.cause}" for one in self.unexplained[:_SHOWN]]
        if self.balance():
            told.append(f"the account does not close: {self.balance()} are missing")
        return told


def _tell(lie: str, names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{lie}: {', '.join(names[:_SHOWN])}{more}"


class _Told:
    """What producers and workers were told, by the names of requests."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self.sent: set[str] = set()
        self.perhaps_sent: set[str] = set()
        self.completed: set[str] = set()
        self.perhaps_completed: set[str] = set()
        pairs = {
            "enqueue": (self.sent, self.perhaps_sent),
            "complete": (self.completed, self.perhaps_completed),
        }
        for call in calls:
            if call.op in pairs:
                surely, perhaps = pairs[call.op]
                if call.outcome == "ok":
                    surely.update(call.names)
                elif call.outcome in DOUBT:
                    perhaps.update(call.names)
        self.sent |= _families(self.completed)
        self.perhaps_sent |= _families(self.perhaps_completed)
        self.perhaps_sent -= self.sent
        self.perhaps_completed -= self.completed


def _families(parents: Iterable[str]) -> set[str]:
    return {child for parent in parents for child in children_of(parent)}


def close(records: Records, picture: Picture, chronicle: Chronicle, *, max_deaths: int) -> Account:
    """The whole account of a run."""
    told = _Told(records.calls)
    deliveries = deliveries_of(records.calls)
    found = Counter([*picture.completed, *(one[0] for one in picture.dead), *picture.queued])
    buried = [name for name, _, _ in picture.dead if not is_poison(name)]
    burials = Burials(deliveries, chronicle, picture.buried_at, max_deaths)
    harmed = [name for name in buried if not burials.was_unlucky(name)]
    account = Account(
        accepted=len(told.sent),
        unknown=len(told.perhaps_sent),
        unknown_kept=len(told.perhaps_sent & found.keys()),
        settled=len(picture.completed),
        dead=len(picture.dead),
        queued=len(picture.queued),
        deliveries=sum(map(len, deliveries.values())),
        repeated_effects=repeated_effects(deliveries),
        repetitions=repetitions(deliveries, chronicle),
        unlucky=len(buried) - len(harmed),
    )
    account.lies = {
        **_lies_about_places(told, found, picture),
        **_lies_about_handling(told, found, deliveries),
        **_lies_about_completion(told, set(picture.completed), deliveries),
        **_lies_about_leases(deliveries, chronicle),
        **_lies_about_the_dead(picture, harmed, max_deaths),
        **_lies_of_the_counts(picture),
    }
    return account


def _lies_about_places(told: _Told, found: Counter[str], picture: Picture) -> dict[str, list[str]]:
    done = set(picture.completed)
    parents = {name: parent_of(name) for name in found}
    orphans = [name for name, parent in parents.items() if parent and parent not in done]
    return {
        "lost": sorted(told.sent - found.keys()),
        "invented": sorted(found.keys() - told.sent - told.perhaps_sent),
        "in two places": sorted(name for name, count in found.items() if count > 1),
        "child without its parent's completion": sorted(orphans),
        "completion without its children": sorted(_families(done) - found.keys()),
    }


def _lies_about_handling(
    told: _Told, found: Counter[str], deliveries: Mapping[str, list[Delivery]]
) -> dict[str, list[str]]:
    sent = told.sent | told.perhaps_sent
    return {
        "delivered and never sent": sorted(deliveries.keys() - sent),
        "delivered and nowhere": sorted((deliveries.keys() & sent) - found.keys()),
    }


def _lies_about_completion(
    told: _Told, done: set[str], deliveries: Mapping[str, list[Delivery]]
) -> dict[str, list[str]]:
    return {
        "told done and not done": sorted(told.completed - done),
        "done and nobody did it": sorted(done - told.completed - told.perhaps_completed),
        "completed more than once": sorted(
            name
            for name, several in deliveries.items()
            if sum(delivery.completed for delivery in several) > 1
        ),
        "poison that was completed": sorted(filter(is_poison, told.completed)),
    }


def _lies_about_leases(
    deliveries: Mapping[str, list[Delivery]], chronicle: Chronicle
) -> dict[str, list[str]]:
    taken = [
        (one, call)
        for several in deliveries.values()
        for one in several
        if (call := one.refused) is not None
    ]
    unexplained = [
        one.name for one, call in taken if not chronicle.was_cut_off(one.at, call.end or call.start)
    ]
    return {"taken from a process that lived": sorted(unexplained)}


def _lies_about_the_dead(
    picture: Picture, harmed: list[str], max_deaths: int
) -> dict[str, list[str]]:
    odd = [
        f"{name} ({reason}, {deaths} deaths)"
        for name, reason, deaths in picture.dead
        if is_poison(name) and (reason, deaths) != ("poisoned", max_deaths)
    ]
    return {
        "buried though not poison": sorted(harmed),
        "buried for another reason": sorted(odd),
    }


def _lies_of_the_counts(picture: Picture) -> dict[str, list[str]]:
    stats = picture.stats
    places = {
        "completed": len(picture.completed),
        "dead": len(picture.dead),
        "enqueued": len(picture.completed) + len(picture.dead) + len(picture.queued),
    }
    wrong = [
        f"{name} {stats[name]}, found {count}"
        for name, count in places.items()
        if name in stats and stats[name] != count
    ]
    return {
        "counted wrongly": wrong + [f"{key}: {pair}" for key, pair in picture.miscounted.items()]
    }
