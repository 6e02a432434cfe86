"""A SQLite store whose reads, writes and syncs fail at the level of the system, again and again.

What it does then: whoever waited for the step is told, the connection is dropped, and the next
step opens the file anew, with every check, writing the log once more before anything is built on
it. It does not stay closed to writers: as soon as the disk works, it goes on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from data_fetcher_core.kv_store.sqlite import SQLiteStore
from tests.demands import injected
from tests.evidence import Evidence
from tests.fault_support import bounded
from tests.sqlite_support import KEEP, Child, child, everything, integrity

__all__ = ["bounded"]

LINES = 40


@dataclass(frozen=True)
class Trouble:
    """What strace does to which calls, to which of them, and how that may be told.

    SQLite says of a page that could not be read that the file is malformed.
    """

    call: str
    strides: tuple[str, ...]
    told: frozenset[str]


TROUBLES = {
    "writes that fail (EIO)": Trouble(
        "pwrite64:error=EIO", ("3+23", "5+29", "2+7"), frozenset({"StoreUnavailable"})
    ),
    "writes cut short": Trouble(
        "pwrite64:retval=0", ("5+13", "3+8", "2+5"), frozenset({"StoreFull"})
    ),
    "reads that fail (EIO)": Trouble(
        "pread64:error=EIO",
        ("2+13", "4+17", "2+29"),
        frozenset({"StoreUnavailable", "StoreCorrupt"}),
    ),
    "syncs that fail (EIO)": Trouble(
        "fsync,fdatasync:error=EIO", ("3+7", "2+5"), frozenset({"StoreUnavailable"})
    ),
}


@pytest.mark.parametrize("what", TROUBLES)
async def test_nothing_is_acknowledged_that_the_system_refused(
    tmp_path: Path, what: str, shows: Evidence
) -> None:
    path, trouble = tmp_path / "runs.db", TROUBLES[what]
    told: dict[str, str] = {}
    with child(KEEP, path) as other:
        told |= _write(other, "first", 1)
        for stride in trouble.strides:
            with injected(other.pid, f"{trouble.call}:when={stride}"):
                told |= _write(other, stride, LINES)
        told |= (afterwards := _write(other, "last", 1))
        other.tell()
        other.rest()
    async with SQLiteStore(path) as store:
        found = {os.fsdecode(key) for key in await everything(store)}
    kept = {line for line, answer in told.items() if answer == "kept"}
    failures = [answer for answer in told.values() if answer != "kept"]
    shows("F44", f"{what}: steps that were told so", len(failures), at_least=10)
    shows("F44", f"{what}: acknowledged, and lost", len(kept - found), exactly=0)
    shows("F44", f"{what}: found, and never sent", len(found - told.keys()), exactly=0)
    shows("F44", f"{what}: integrity", integrity(path), exactly="ok")
    shows("F44", f"{what}: the first step afterwards", afterwards["last 0"], exactly="kept")
    others = sum(answer not in trouble.told for answer in failures)
    shows("F44", f"{what}: told by an error of another kind", others, exactly=0)


def _write(other: Child, name: str, lines: int) -> dict[str, str]:
    """What was said of each line."""
    told = {}
    for number in range(lines):
        other.tell(line := f"{name} {number}")
        told[line] = other.hear()
    return told
