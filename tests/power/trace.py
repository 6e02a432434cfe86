"""A process under strace: what it asked of the files in one directory, in order.

Nothing of the process is changed or replaced. What could write to a file unseen (shared memory,
copies inside the kernel) stops the reading with an error, except for ``-shm``, which SQLite makes
anew after a crash.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

NO_STRACE = "strace is needed to record what goes to disk: apt-get install strace"

_FILES = "openat,close,unlink,unlinkat,rename,renameat,renameat2"
_CHANGES = "write,pwrite64,ftruncate,fsync,fdatasync"
# Not understood here: an error where one of our files is meant.
UNEXPECTED = (
    "open,creat,openat2,truncate,writev,pwritev,pwritev2,fallocate,sync_file_range,link,linkat,"
    "symlink,symlinkat,dup,dup2,dup3,copy_file_range,sendfile,splice,mmap,io_uring_setup"
)
SYNCS = ("fsync", "fdatasync")
_LONGEST = 1 << 20

_LINE = re.compile(r"(\d+) +(.*)")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+|\?)(?: .*)?")
_UNFINISHED = " <unfinished ...>"


class TraceError(Exception):
    """The trace says something that this module does not understand."""


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that has returned; ``ticket`` is the number of calls begun before it."""

    name: str
    args: tuple[str, ...]
    result: int
    ticket: int

    def text(self, at: int) -> str:
        return as_bytes(self.args[at]).decode()


def run_traced(
    command: Sequence[str], output: Path, *, failing: str = "", within: float = 120.0
) -> None:
    """Run it to its end; it must end well. ``failing="7..9"`` are syncs that get an error."""
    strace = shutil.which("strace")
    if strace is None:
        raise FileNotFoundError(NO_STRACE)
    calls = f"trace={_FILES},{_CHANGES}," + ",".join(f"?{name}" for name in UNEXPECTED.split(","))
    flags = ["-f", "-xx", "-s", str(_LONGEST), "-e", calls, "-e", "signal=none"]
    if failing:
        flags += ["-e", f"inject=fdatasync:error=EIO:when={failing}"]
    done = subprocess.run(
        [strace, *flags, "-o", str(output), *command],
        capture_output=True, text=True, timeout=within, check=False,
    )  # fmt: skip
    if done.returncode:
        raise TraceError(f"{command} ended with {done.returncode}:\n{done.stderr[-3000:]}")


def calls(lines: Iterable[str]) -> Iterator[Call]:
    """Every call that returned, in the order of returning; of those that failed only syncs."""
    pending: dict[str, tuple[str, int]] = {}
    for ticket, line in enumerate(lines):
        thread, body = _halves(line)
        begun = ticket
        if body.endswith(_UNFINISHED):
            pending[thread] = body.removesuffix(_UNFINISHED), ticket
            if body.startswith("close("):  # from now on another thread may get its number
                yield Call("close", (body.removesuffix(_UNFINISHED)[6:],), 0, ticket)
            continue
        if resumed := _RESUMED.fullmatch(body):
            start, begun = pending.pop(thread)
            body = start + resumed[1]
            if start.startswith("close("):
                continue
        if (call := _parsed(body, begun)) is not None:
            yield call


def _halves(line: str) -> tuple[str, str]:
    match = _LINE.fullmatch(line.rstrip("\n"))
    if match is None:
        raise TraceError(f"no line of strace: {line[:200]!r}")
    return match[1], match[2]


def _parsed(body: str, ticket: int) -> Call | None:
    if body.startswith(("+++", "---")):
        return None
    match = _CALL.fullmatch(body)
    if match is None:
        raise TraceError(f"no call: {body[:200]!r}")
    if match[3] == "?" or (match[3].startswith("-") and match[1] not in SYNCS):
        return None
    # Texts are hexadecimal throughout, so that no comma is part of one.
    return Call(match[1], tuple(match[2].split(", ")), int(match[3], 0), ticket)


def as_bytes(text: str) -> bytes:
    """What strace shows as ``"\\x61\\x62"``; one that it has shortened is refused."""
    if not (text.startswith('"') and text.endswith('"')):
        raise TraceError(f"no whole text: {text[:60]!r}…")
    return bytes.fromhex(text[1:-1].replace("\\x", ""))
