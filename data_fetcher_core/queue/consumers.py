"""Who reads a queue, and who of them is dead.

A consumer's name says where it runs: host, boot, PID namespace, pid, the start of that process,
and a random part. Of a process on this very host it can be told at once whether it still runs.
Of any other, only that its beat has not moved for ``lease_ttl`` of our own monotonic clock.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_FIELDS = 6
_STATE_FIELD = 0
_START_FIELD = 19


class Whereabouts(NamedTuple):
    """Where a process lives."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: str


def here() -> Whereabouts:
    """This process."""
    pid = os.getpid()
    status = process_status(pid)
    return Whereabouts(
        host=socket.gethostname().replace("|", "-"),
        boot=_read(_PROC / "sys/kernel/random/boot_id"),
        namespace=_link(_PROC / "self/ns/pid"),
        pid=pid,
        started="" if status is None else status[1],
    )


def make_name(place: Whereabouts) -> bytes:
    return "|".join([*map(str, place), secrets.token_hex(6)]).encode()


def place_of(name: bytes) -> Whereabouts | None:
    """Where the consumer of that name lives, ``None`` if the name does not tell."""
    parts = name.decode(errors="replace").split("|")
    if len(parts) != _FIELDS or not parts[3].isdigit():
        return None
    host, boot, namespace, pid, started, _ = parts
    return Whereabouts(host, boot, namespace, int(pid), started)


def is_surely_dead(name: bytes, ours: Whereabouts) -> bool:
    """Same boot, same PID namespace, and the process is gone, a zombie, or another one."""
    theirs = place_of(name)
    if theirs is None or not (theirs.boot and theirs.namespace and theirs.started):
        return False
    if theirs[:3] != ours[:3]:
        return False
    status = process_status(theirs.pid)
    if status is None:
        return not _exists(theirs.pid)
    return status[0] in "ZX" or status[1] != theirs.started


def _exists(pid: int) -> bool:
    """Whether there is such a process, even one that we may not look at."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def process_status(pid: int) -> tuple[str, str] | None:
    """State and start of a process; ``None`` if there is none, or none that we may look at."""
    text = _read(_PROC / str(pid) / "stat")
    # The name in parentheses may hold anything, spaces and parentheses included.
    after_name = text.rpartition(")")[2].split()
    if len(after_name) <= _START_FIELD:
        return None
    return after_name[_STATE_FIELD], after_name[_START_FIELD]


class Watchlist:
    """How long each consumer's beat has stood still, by our own clock."""

    def __init__(self) -> None:
        self._since: dict[bytes, tuple[int, float]] = {}

    def silent(self, beats: Mapping[bytes, int], now: float, lease_ttl: float) -> list[bytes]:
        """Note the beats; the consumers that have been silent for ``lease_ttl``."""
        self._since = {
            name: known if (known := self._since.get(name, (beat, now)))[0] == beat else (beat, now)
            for name, beat in beats.items()
        }
        return [name for name, (_, since) in self._since.items() if now - since >= lease_ttl]

    def excuse(self, duration: float) -> None:
        """Nobody could have been heard for so long."""
        self._since = {name: (beat, at + duration) for name, (beat, at) in self._since.items()}

    def forget(self) -> None:
        """Begin anew: every silence is counted from the next look on."""
        self._since = {}


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
