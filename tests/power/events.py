"""What a record is made of: what was asked of the disk, and what was said meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Write:
    file: int
    at: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    file: int
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """It has returned; ``changes`` of the file had been asked for when it was called.

    One that ``failed`` is told once: the system takes what could not be written for written, and
    the next sync does not try it again.
    """

    file: int
    changes: int
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """``name`` leads to ``file`` from now on; ``instead_of`` is what the file was called before."""

    name: str
    file: int
    instead_of: str | None = None


@dataclass(frozen=True, slots=True)
class Unlink:
    name: str


@dataclass(frozen=True, slots=True)
class SyncDirectory:
    """Every name that was made or removed before is durable."""


@dataclass(frozen=True, slots=True)
class Trying:
    """COMMIT is about to be called; ``state`` is the digest of all that the store will hold."""

    number: int
    state: str


@dataclass(frozen=True, slots=True)
class Commit:
    """COMMIT has returned."""

    number: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A caller asked for something."""

    step: int
    what: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The caller was answered."""

    step: int


OnDisk = Write | Truncate | Sync | Link | Unlink | SyncDirectory
Said = Trying | Commit | Begun | Acknowledged
Event = OnDisk | Said
