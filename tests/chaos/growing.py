"""Whether those who live long grow: their memory and their open files, looked at now and then."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.chaos.processes import Slot

_MEMORY = re.compile(r"VmRSS:\s+(\d+) kB")
# Of the looks at a process, so many are compared at each end: after it has warmed up, and last.
_FIFTH = 5


class Size(NamedTuple):
    """Memory in MB."""

    process: str
    at: float
    memory: float
    files: int


class Growth(NamedTuple):
    memory: float
    files: float


async def watch(slots: Callable[[], Iterable[Slot]], sizes: list[Size], pause: float) -> None:
    """For ever."""
    while True:
        for slot in slots():
            if slot.pid is not None:
                # It may have ended, or be another's by now.
                with suppress(OSError, ValueError):
                    sizes.append(_look(slot.process, slot.pid))
        await asyncio.sleep(pause)


def _look(process: str, pid: int) -> Size:
    place = Path(f"/proc/{pid}")
    found = _MEMORY.search((place / "status").read_text())
    if found is None:
        raise ValueError(f"{process} has no memory any more")
    files = sum(1 for _ in (place / "fd").iterdir())
    return Size(process, time.monotonic(), int(found[1]) / 1024, files)


def growth(sizes: Iterable[Size], at_least: float) -> dict[str, Growth]:
    """Of each that was looked at for so long: its last fifth against its second."""
    looks: dict[str, list[Size]] = defaultdict(list)
    for size in sizes:
        looks[size.process].append(size)
    return {
        process: _grown(several)
        for process, several in looks.items()
        if len(several) >= _FIFTH and several[-1].at - several[0].at >= at_least
    }


def _grown(several: list[Size]) -> Growth:
    fifth = len(several) // _FIFTH
    early, late = several[fifth : 2 * fifth], several[-fifth:]
    return Growth(
        median(size.memory for size in late) - median(size.memory for size in early),
        median(size.files for size in late) - median(size.files for size in early),
    )
