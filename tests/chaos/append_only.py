"""The end of a killed server's append-only file.

A server that is killed while it writes leaves the last step torn. Redis (6.2.14 and 7.0.15 were
tried) cuts off the torn command only, and keeps those of the step before it: not applied at this
start, they are applied at the next one, half a step that nobody was told of. ``redis-check-aof
--fix`` cuts off the whole step; so does this. Valkey does so by itself since its pull request 4342.
"""

from __future__ import annotations

import os
from pathlib import Path

_MULTI, _EXEC = b"*1\r\n$5\r\nMULTI\r\n", b"*1\r\n$4\r\nEXEC\r\n"
# More than any step of ours has.
_TAIL = 32 * 1024 * 1024


def cut_torn_step(directory: Path) -> bool:
    """Cut the file of a server that does not run; whether there was anything to cut."""
    path = _last_file(directory)
    if path is None:
        return False
    with path.open("r+b") as file:
        start = max(0, file.seek(0, os.SEEK_END) - _TAIL)
        file.seek(start)
        at = torn_at(file.read())
        if at is not None:
            file.truncate(start + at)
    return at is not None


def torn_at(tail: bytes) -> int | None:
    """Where a step begins that does not end."""
    begun = tail.rfind(_MULTI)
    return begun if begun >= 0 and tail.find(_EXEC, begun) < 0 else None


def _last_file(directory: Path) -> Path | None:
    parts = sorted(directory.glob("appendonlydir/*.incr.aof"), key=_number)
    if parts:
        return parts[-1]
    whole = directory / "appendonly.aof"
    return whole if whole.exists() else None


def _number(path: Path) -> int:
    """``appendonly.aof.12.incr.aof`` has the number 12."""
    return int(path.name.split(".")[-3])
