"""A process that is traced: what it asked of the files in one directory, in order.

Nothing of the process is changed or replaced. What could write to a file unseen (shared memory,
copies inside the kernel) stops the reading with an error, except for ``-shm``, which SQLite makes
anew after a crash.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# What a call is given: d a descriptor, p a path, b bytes whose number comes next, n a number.
UNDERSTOOD = {
    "open": "pn", "openat": "dpn", "close": "d", "unlink": "p", "unlinkat": "dp",
    "rename": "pp", "renameat": "dpdp", "renameat2": "dpdp",
    "write": "dbn", "pwrite64": "dbnn", "ftruncate": "dn", "fsync": "d", "fdatasync": "d",
}  # fmt: skip
# Not understood here: an error where one of our files is meant.
UNEXPECTED = {
    "creat": "p", "openat2": "dp", "mkdir": "p", "mkdirat": "dp", "truncate": "p",
    "link": "pp", "linkat": "dpdp", "symlink": "pp", "symlinkat": "pdp",
    "writev": "d", "pwritev": "d", "pwritev2": "d", "fallocate": "d", "sync_file_range": "d",
    "dup": "d", "dup2": "dd", "dup3": "dd", "copy_file_range": "dnd", "splice": "dnd",
    "fcntl": "dn", "sendfile": "dd", "mmap": "nnnnd", "io_uring_setup": "",
}  # fmt: skip
SHAPES = UNDERSTOOD | UNEXPECTED
SYNCS = ("fsync", "fdatasync")
NONE = range(0)
_ROOT = Path(__file__).parents[2]


class TraceError(Exception):
    """The process did something that is not understood here."""


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that has returned; ``begun`` and ``ended`` are moments, counted from 0."""

    name: str
    args: tuple[int | bytes, ...]
    result: int
    begun: int
    ended: int

    def number(self, at: int) -> int:
        return int(self.args[at])

    def data(self, at: int) -> bytes:
        value = self.args[at]
        assert isinstance(value, bytes), self
        return value

    def path(self, at: int) -> Path:
        return Path(os.fsdecode(self.data(at)))


def run_traced(
    command: Sequence[str], *, output: Path, failing: range = NONE, within: float = 120.0
) -> list[Call]:
    """Run it to its end; it must end well. ``failing`` are the syncs of each thread that fail.

    All that returned, in the order of returning; of calls that failed only syncs. A tracer is told
    of every child of its process, hence it has one for itself.
    """
    options = json.dumps([str(output), failing.start, failing.stop])
    done = subprocess.run(
        [sys.executable, "-m", "tests.power.tracer", options, *command],
        cwd=_ROOT, capture_output=True, text=True, timeout=within, check=False,
    )  # fmt: skip
    if done.returncode:
        raise TraceError(f"{command} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    with output.open("rb") as file:
        calls: list[Call] = pickle.load(file)
    return calls
