"""Who reads a queue, and who of them is dead.

A consumer's name says where it runs: host, boot, PID namespace, pid, the start of that process;
then its ``lease_ttl``, and a random part. Of a process on this very host it can be told at once
whether it still runs. Of any other, only that its beat has not moved for its ``lease_ttl`` of our
own monotonic clock.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_PLACE = 5
# What does not hold leases has promised nothing, and has a name without it.
_FIELDS = (_PLACE + 1, _PLACE + 2)
_PID = re.compile("[0-9]{1,9}")
_PROMISE = re.compile("[1-9][0-9]{0,14}")
_STATE_FIELD = 0
_START_FIELD = 19
# A longer gap between two looks is our own: we were stopped, perhaps with all the others.
_LONGEST_GAP = 1 / 3


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
        host=_plain_host(),
        boot=_read(_PROC / "sys/kernel/random/boot_id"),
        namespace=_link(_PROC / "self/ns/pid"),
        pid=pid,
        started="" if status is None else status[1],
    )


def _plain_host() -> str:
    """Its name may be any bytes; ours are part of keys and of file names."""
    host = socket.gethostname().encode("ascii", "backslashreplace").decode()
    return host.replace("|", "-").replace("/", "-")


def make_name(place: Whereabouts, lease_ttl: float | None = None) -> bytes:
    """A name that nobody else has; ``lease_ttl`` if it is the name of one who holds leases."""
    promise = [] if lease_ttl is None else [str(round(lease_ttl * 1e6))]
    return "|".join([*map(str, place), *promise, secrets.token_hex(6)]).encode()


def place_of(name: bytes) -> Whereabouts | None:
    """Where the consumer of that name lives, ``None`` if the name does not tell."""
    parts = _parts(name)
    if len(parts) not in _FIELDS or not _PID.fullmatch(parts[3]):
        return None
    host, boot, namespace, pid, started = parts[:_PLACE]
    return Whereabouts(host, boot, namespace, int(pid), started)


def promise_of(name: bytes) -> float | None:
    """The ``lease_ttl`` by which the consumer of that name beats, ``None`` if it does not tell."""
    parts = _parts(name)
    told = len(parts) == max(_FIELDS) and _PROMISE.fullmatch(parts[_PLACE])
    return int(parts[_PLACE]) / 1e6 if told else None


def _parts(name: bytes) -> list[str]:
    return name.decode(errors="replace").split("|")


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
    """How long each consumer's beat has stood still, by our own clock, while we were looking.

    Whether we looked is a question to the clock of the process: it passes while we are stopped.
    """

    def __init__(self, process_clock: Callable[[], float] = time.monotonic) -> None:
        self._since: dict[bytes, tuple[int, float]] = {}
        self._process_clock = process_clock
        self._looked_at = process_clock()

    def silent(self, beats: Mapping[bytes, int], now: float, lease_ttl: float) -> list[bytes]:
        """Note the beats; the consumers that have been silent for too long.

        That is for the ``lease_ttl`` they beat by, or for ours where their name does not tell.
        """
        patience = {name: promise_of(name) or lease_ttl for name in beats}
        gap = self._gap()
        self._since = {
            name: (beat, self._silent_since(name, beat, now, gap - _LONGEST_GAP * patience[name]))
            for name, beat in beats.items()
        }
        return [name for name, (_, at) in self._since.items() if now - at >= patience[name]]

    def _gap(self) -> float:
        """How long ago we looked last."""
        before, self._looked_at = self._looked_at, self._process_clock()
        return self._looked_at - before

    def _silent_since(self, name: bytes, beat: int, now: float, not_looked: float) -> float:
        known, since = self._since.get(name, (beat, now))
        return since + max(0.0, not_looked) if known == beat else now

    def excuse(self, duration: float) -> None:
        """Nobody could have been heard for so long."""
        self._since = {name: (beat, at + duration) for name, (beat, at) in self._since.items()}
        self._looked_at += duration

    def forget(self) -> None:
        """Begin anew: every silence is counted from the next look on."""
        self._since = {}


def _read(path: Path) -> str:
    try:
        # Not all of it is ours, nor text: a process may be called anything.
        return path.read_bytes().decode(errors="replace").strip()
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
