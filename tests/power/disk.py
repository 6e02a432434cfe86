"""A disk that remembers what was synced, and may forget everything else.

A write reaches the disk in sectors, each at a time of its own. So after a cut a sector may be as it
was at any moment since it was last synced, whatever its neighbours are; and the change that was
under way may have stopped at any byte of it. The size of a file is one more such thing, and with
it go the sectors that a shortened file gives up: a file system frees them all, or none. A name that
was made or removed is durable when its directory was synced, not before.

A sync that fails is the last word on what it was to write: the next one passes over it, unless
something has been written to the same page since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.power.events import (
    Link,
    OnDisk,
    Sync,
    SyncDirectory,
    Truncate,
    Unlink,
    Write,
)

SECTOR = 512
PAGE = 8  # sectors: what an operating system writes back at a time
Change = Write | Truncate
Naming = Link | Unlink


@dataclass(frozen=True)
class Fate:
    """How far each sector of a file got: so many of its pending changes are in it.

    ``torn`` says of how many bytes of a sector the change after those is in it as well, from its
    beginning on, or from its end if the number is negative.
    """

    others: int
    sectors: Mapping[int, int] = field(default_factory=dict)
    torn: Mapping[int, int] = field(default_factory=dict)
    size: int | None = None

    def reached(self, sector: int) -> int:
        return self.sectors.get(sector, self.others)


@dataclass
class File:
    """What is durable, and what was asked for since.

    The first of the pending changes may be ``forgotten``: a sync was to write them, and failed.
    """

    durable: bytes = b""
    pending: list[Change] = field(default_factory=list)
    forgotten: int = 0
    _synced: int = 0

    def sync(self, changes: int, *, failed: bool = False) -> None:
        """A sync was asked for when so many changes had been made since the file began."""
        count = max(0, changes - self._synced)
        self._synced += count
        covered = self.forgotten + count
        if failed:
            self.forgotten = covered
            return
        old, fresh = self.pending[: self.forgotten], self.pending[self.forgotten : covered]
        written, left = _written_back(old, fresh)
        size = size_after(len(self.durable), old + fresh)
        self.durable = _after(self.durable, written, Fate(len(written))).ljust(size, b"\0")
        self.pending[:covered] = left
        self.forgotten = len(left)

    def after(self, fate: Fate) -> bytes:
        return _after(self.durable, self.pending, fate)


@dataclass
class Disk:
    """One directory; :meth:`do` plays a record on it."""

    files: dict[int, File] = field(default_factory=dict)
    durable_names: dict[str, int] = field(default_factory=dict)
    namings: list[Naming] = field(default_factory=list)

    def do(self, event: OnDisk) -> None:
        match event:
            case Write() | Truncate() | Sync():
                self._change(event)
            case Link() | Unlink():
                self.namings.append(event)
                if isinstance(event, Link):
                    self.files.setdefault(event.file, File())
            case SyncDirectory():
                self.durable_names = self.names(range(len(self.namings)))
                self.namings.clear()
                self._forget_what_has_no_name()

    def _change(self, event: Change | Sync) -> None:
        file = self.files.get(event.file)
        if file is None:  # it has lost its name for good
            return
        if isinstance(event, Sync):
            file.sync(event.changes, failed=event.failed)
        else:
            file.pending.append(event)

    def names(self, kept: range | list[int]) -> dict[str, int]:
        """What the names lead to when only these of the pending namings are kept."""
        names = dict(self.durable_names)
        for at in kept:
            naming = self.namings[at]
            if isinstance(naming, Unlink):
                names.pop(naming.name, None)
            else:
                names[naming.name] = naming.file
                if naming.instead_of is not None:
                    names.pop(naming.instead_of, None)
        return names

    def now(self) -> dict[str, bytes]:
        """What every program sees while the machine is on."""
        names = self.names(range(len(self.namings)))
        files = {name: self.files[number] for name, number in names.items()}
        return {name: file.after(Fate(len(file.pending))) for name, file in files.items()}

    def _forget_what_has_no_name(self) -> None:
        named = set(self.durable_names.values())
        self.files = {number: file for number, file in self.files.items() if number in named}


def sectors_of(change: Change, size: int = 0) -> range:
    """The sectors that it changes, in a file of this size."""
    if isinstance(change, Write):
        return range(change.at // SECTOR, -(-(change.at + len(change.data)) // SECTOR))
    return range(change.size // SECTOR, -(-max(size, change.size) // SECTOR))


def _written_back(old: list[Change], fresh: list[Change]) -> tuple[list[Change], list[Change]]:
    """What a sync writes, and what of the forgotten changes it passes over."""
    if any(isinstance(change, Truncate) for change in old):
        return [*old, *fresh], []
    dirty = {sector // PAGE for change in fresh for sector in sectors_of(change)}
    pieces = [piece for change in old if isinstance(change, Write) for piece in _by_pages(change)]
    written = [piece for piece in pieces if piece.at // (PAGE * SECTOR) in dirty]
    left = [piece for piece in pieces if piece.at // (PAGE * SECTOR) not in dirty]
    return [*written, *fresh], list(left)


def _by_pages(change: Write) -> Iterator[Write]:
    size, end = PAGE * SECTOR, change.at + len(change.data)
    for page in range(change.at // size, -(-end // size)):
        start, stop = max(change.at, page * size), min(end, (page + 1) * size)
        yield Write(change.file, start, change.data[start - change.at : stop - change.at])


def _after(durable: bytes, changes: list[Change], fate: Fate) -> bytes:
    content = bytearray(durable)
    sized = fate.others if fate.size is None else fate.size
    for at, change in enumerate(changes):
        if isinstance(change, Truncate):
            del content[change.size if at < sized else len(content) :]
            continue
        content.extend(bytes(max(0, change.at + len(change.data) - len(content))))
        for start, piece in _pieces(change, at, fate):
            content[start : start + len(piece)] = piece
    size = size_after(len(durable), changes[:sized])
    del content[size:]
    return bytes(content) + bytes(size - len(content))


def size_after(size: int, changes: list[Change]) -> int:
    for change in changes:
        end = change.at + len(change.data) if isinstance(change, Write) else change.size
        size = end if isinstance(change, Truncate) else max(size, end)
    return size


def _pieces(change: Write, at: int, fate: Fate) -> Iterator[tuple[int, bytes]]:
    """What of a change is in which place."""
    first, data = change.at, change.data
    if not fate.sectors and not fate.torn:
        if at < fate.others:
            yield first, data
        return
    for sector in sectors_of(change):
        start, end = max(first, sector * SECTOR), min(first + len(data), (sector + 1) * SECTOR)
        piece = data[start - first : end - first]
        if at < fate.reached(sector):
            yield start, piece
        elif at == fate.reached(sector) and (torn := fate.torn.get(sector, 0)):
            yield (start, piece[:torn]) if torn > 0 else (max(start, end + torn), piece[torn:])
