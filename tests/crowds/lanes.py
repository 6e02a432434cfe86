"""What lanes leave behind once they are empty."""

from __future__ import annotations

from dataclasses import dataclass

from data_fetcher_core.queue import KVStoreQueue
from tests.crowds.places import MEGABYTE, Place, Weight, weigh
from tests.crowds.turns import (
    BATCH,
    FAULT,
    FULL,
    Tell,
    Turns,
    fill,
    fill_others,
    take_turns,
)
from tests.evidence import Evidence


@dataclass(frozen=True)
class Size:
    """So many in one lane, and so many in each of all the others."""

    requests: int
    lanes: int
    each: int


@dataclass(frozen=True)
class Lanes:
    """With the full lane alone, with all the others too, and without them again."""

    turns: Turns
    before: Weight
    crowded: Weight
    after: Weight

    @property
    def given_back(self) -> float:
        """In per cent of what the others took."""
        took = self.crowded.entries_bytes - self.before.entries_bytes
        return 100 * (self.crowded.entries_bytes - self.after.entries_bytes) / took

    @property
    def growth(self) -> float:
        return (self.after.holder_bytes - self.before.holder_bytes) / MEGABYTE

    @property
    def objects(self) -> float:
        """That are kept for each lane that is empty now."""
        return max(0, self.after.objects - self.before.objects) / self.turns.lanes


async def crowd(queue: KVStoreQueue, place: Place, size: Size, tell: Tell) -> Lanes:
    """Everybody is served but the full lane, which is as long afterwards as it was before."""
    await fill(queue, FULL, size.requests, tell)
    await _warm_up(queue, tell)
    before = weigh(place)
    await fill_others(queue, size.lanes, size.each)
    crowded = weigh(place)
    turns = await take_turns(queue, size.lanes, size.each, tell)
    await fill(queue, FULL, turns.served_of_full, tell)
    return Lanes(turns, before, crowded, weigh(place))


async def _warm_up(queue: KVStoreQueue, tell: Tell) -> None:
    """What is made at the first turn, and kept, is no lane's."""
    for _ in range(3):
        await fill(queue, FULL, len(await queue.dequeue(BATCH)), tell)


def show_lanes(shows: Evidence, seen: Lanes, place: Place, where: str) -> None:
    left = seen.after.entries - seen.before.entries
    shows(FAULT, f"{place.entry} that empty lanes leave behind{where}", left, exactly=0)
    back = f"memory of {place.entry} that empty lanes give back{where}"
    shows(FAULT, back, round(seen.given_back, 1), at_least=95, unit="%")
    objects = f"objects of the process kept for an empty lane{where}"
    shows(FAULT, objects, round(seen.objects, 2), at_most=0.1)
    growth = f"growth of the {place.holder} by lanes that are empty again{where}"
    shows(FAULT, growth, round(seen.growth, 2), at_most=place.most_growth, unit="MB")
