"""What may become of a file's unsynced changes, and of names: the ways a cut can go."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from tests.power.disk import PAGE, SECTOR, Disk, Fate, File, sectors_of
from tests.power.events import Truncate

Choose = Callable[[random.Random, File], Fate]


def everything(dice: random.Random, file: File) -> Fate:
    return Fate(len(file.pending))


def nothing(dice: random.Random, file: File) -> Fate:
    return Fate(0)


def in_order(dice: random.Random, file: File) -> Fate:
    """Up to some moment; the change of that moment is torn, at a sector or within one."""
    whole = dice.randint(0, len(file.pending) - 1)
    touched = list(_touched(file, whole))
    written = touched[: dice.randint(0, len(touched))]
    torn = _tear(dice, file, whole) if dice.random() < 0.5 else {}
    return Fate(whole, dict.fromkeys(written, whole + 1), torn, size=whole + dice.randint(0, 1))


def scattered(dice: random.Random, file: File) -> Fate:
    """Every sector at a time of its own."""
    return _each(dice, file, 1)


def by_pages(dice: random.Random, file: File) -> Fate:
    """Every page at a time of its own."""
    return _each(dice, file, PAGE)


def one_lost(dice: random.Random, file: File) -> Fate:
    """One change is missing, with whatever came later to the same sectors."""
    lost = dice.randrange(len(file.pending))
    count = len(file.pending)
    return Fate(count, dict.fromkeys(_touched(file, lost), lost))


def one_torn(dice: random.Random, file: File) -> Fate:
    """One sector of one change stopped at some byte; everything else is there."""
    at = dice.randrange(len(file.pending))
    torn = _tear(dice, file, at)
    return Fate(len(file.pending), dict.fromkeys(torn, at), torn)


def last_only(dice: random.Random, file: File) -> Fate:
    """The last changes overtook all before them."""
    count = len(file.pending)
    last = range(max(0, count - dice.randint(1, 3)), count)
    late = [sector for at in last for sector in _touched(file, at)]
    return Fate(0, dict.fromkeys(late, count), size=count)


def grown(dice: random.Random, file: File) -> Fate:
    """The size is there, the bytes are not."""
    return Fate(0, size=len(file.pending))


def not_grown(dice: random.Random, file: File) -> Fate:
    """The bytes are there, the size is not."""
    return Fate(len(file.pending), size=0)


WAYS: tuple[Choose, ...] = (
    everything, nothing, in_order, scattered, by_pages, one_lost, one_torn, last_only, grown,
    not_grown,
)  # fmt: skip


def cut(disk: Disk, variant: int, dice: random.Random) -> dict[str, bytes]:
    """The files as the next start finds them. The first variants go the same way everywhere."""
    names = disk.names(_kept_namings(dice, len(disk.namings), variant))
    way = WAYS[variant % len(WAYS)]
    mixed = variant >= len(WAYS) and dice.random() < 0.5
    files = {
        name: _content(dice, disk.files[file], dice.choice(WAYS) if mixed else way)
        for name, file in names.items()
    }
    return {**files, **_left_from_memory(dice, files)}


def _left_from_memory(dice: random.Random, files: Iterable[str]) -> dict[str, bytes]:
    """SQLite's index of its log is memory that happens to have a name: anything may be in it."""
    logs = [name for name in files if name.endswith("-wal") and dice.random() < 0.2]
    return {name.replace("-wal", "-shm"): dice.randbytes(32_768) for name in logs}


def _content(dice: random.Random, file: File, way: Choose) -> bytes:
    return file.after(way(dice, file)) if file.pending else file.durable


def _kept_namings(dice: random.Random, count: int, variant: int) -> range | list[int]:
    if variant in {0, 1}:
        return range(count * (1 - variant))
    match dice.randrange(4):
        case 0:
            return range(count)
        case 1:
            return range(dice.randint(0, count))
        case 2:
            return range(0)
    return [at for at in range(count) if dice.random() < 0.5]


def _each(dice: random.Random, file: File, together: int) -> Fate:
    count = len(file.pending)
    touched = {sector for at in range(count) for sector in _touched(file, at)}
    reached = {group: dice.randint(0, count) for group in {s // together for s in touched}}
    # All of one sector or nothing of it, more often than something in between.
    for group in reached:
        if dice.random() < 0.6:
            reached[group] = dice.choice((0, count))
    sectors = {sector: reached[sector // together] for sector in touched}
    return Fate(count, sectors, size=dice.choice((0, count, dice.randint(0, count))))


def _touched(file: File, at: int) -> Iterable[int]:
    return sectors_of(file.pending[at], len(file.durable))


def _tear(dice: random.Random, file: File, at: int) -> dict[int, int]:
    """A byte within one sector of a change."""
    change = file.pending[at]
    if isinstance(change, Truncate) or not change.data:
        return {}
    sector = dice.choice(sectors_of(change))
    start, end = max(change.at, sector * SECTOR), change.at + len(change.data)
    length = min(end, (sector + 1) * SECTOR) - start
    return {sector: dice.choice((-1, 1)) * dice.randint(1, max(1, length - 1))}
