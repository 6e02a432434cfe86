"""The cut points of a record: after every event, in many ways, no two alike."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.power.disk import Disk
from tests.power.events import Acknowledged, Commit, Said, Sync
from tests.power.fates import WAYS, cut
from tests.power.record import Record

_TRIES = 3


@dataclass(frozen=True)
class Cut:
    """The files that a cut left, and how many commits stood when somebody was last answered."""

    record: Record
    event: int
    variant: int
    files: dict[str, bytes]
    acknowledged: int

    def __str__(self) -> str:
        return f"record {self.record.name!r}, event {self.event}, variant {self.variant}"


def cuts(record: Record, wanted: int, *, ignore_syncs: bool = False) -> Iterator[Cut]:
    """About so many, spread evenly. ``ignore_syncs`` is for showing that a lie is found out."""
    disk, seen, so_far = Disk(), set[bytes](), _SoFar()
    on_disk = sum(not isinstance(event, Said) for event in record.events)
    found, passed = 0, 0
    for number, event in enumerate(record.events):
        if isinstance(event, Said):
            so_far.hear(event)
            continue
        if not (ignore_syncs and isinstance(event, Sync)):
            disk.do(event)
        passed += 1
        due = wanted * passed // on_disk
        first = random.Random(f"{record.name} {number}").randrange(3 * len(WAYS))
        for variant in range(first, first + _TRIES * max(0, due - found)):
            if found >= due:
                break
            made = Cut(record, number, variant, _files(disk, record, number, variant), so_far.kept)
            if (mark := _mark(made)) not in seen:
                seen.add(mark)
                found += 1
                yield made


class _SoFar:
    """What was said up to an event."""

    def __init__(self) -> None:
        self._committed = 0
        self.kept = 0

    def hear(self, event: Said) -> None:
        if isinstance(event, Commit):
            self._committed = event.number
        elif isinstance(event, Acknowledged):
            self.kept = self._committed


def _files(disk: Disk, record: Record, event: int, variant: int) -> dict[str, bytes]:
    return cut(disk, variant, random.Random(f"{record.name} {event} {variant}"))


def _mark(made: Cut) -> bytes:
    digest = hashlib.blake2b(b"%d " % made.acknowledged)
    for name, content in sorted(made.files.items()):
        if not name.endswith("-reserve"):
            digest.update(b"%s %d " % (name.encode(), len(content)) + content)
    return digest.digest()
