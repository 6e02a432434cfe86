"""From system calls to events: which file each of them means, and what the workload said."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.power.disk import Disk
from tests.power.events import (
    Acknowledged,
    Begun,
    Commit,
    Event,
    Link,
    Said,
    Sync,
    SyncDirectory,
    Truncate,
    Trying,
    Unlink,
    Write,
)
from tests.power.trace import NONE, UNEXPECTED, Call, TraceError, run_traced
from tests.power.workload import EMPTY

NOTES = "notes"
_DIRECTORY = -1
_PASSING = "-shm"


@dataclass(frozen=True)
class Record:
    """A whole workload. ``states`` are the digests of all that was to be committed, by number.

    There are two of a number where a commit failed, and may have been kept all the same.
    """

    name: str
    events: list[Event]

    @cached_property
    def states(self) -> dict[int, set[str]]:
        found = {0: {EMPTY}}
        for event in self.events:
            if isinstance(event, Trying):
                found.setdefault(event.number, set()).add(event.state)
        return found


def record(
    seed: int, synchronous: str, *, broken: str = "", failing: range = NONE, steps: int = 60
) -> Record:
    """Run the workload on an empty directory, in memory where there is one."""
    with tempfile.TemporaryDirectory(dir=memory_directory(), prefix="power-") as place:
        directory, trace = Path(place, "disk"), Path(place, "trace")
        directory.mkdir()
        options = {"seed": seed, "synchronous": synchronous, "steps": steps, "broken": broken}
        what = [str(directory), str(Path(place, NOTES)), json.dumps(options)]
        command = [sys.executable, "-m", "tests.power.workload", *what]
        calls = run_traced(command, output=trace, failing=failing)
        events = list(Reader(directory, Path(place, NOTES)).events(calls))
        _check_whole(events, directory)
    name = " ".join(filter(None, (synchronous, broken, _told(failing), str(seed))))
    return Record(name, events)


def _told(failing: range) -> str:
    return f"{failing.start}..{failing.stop - 1}" if failing else ""


def _check_whole(events: list[Event], directory: Path) -> None:
    """Played without a cut, the record must leave what the workload left: nothing went unseen."""
    disk = Disk()
    for event in events:
        if not isinstance(event, Said):
            disk.do(event)
    files = {file.name: file.read_bytes() for file in directory.iterdir()}
    if disk.now() != {name: files[name] for name in files if not name.endswith(_PASSING)}:
        raise TraceError(f"the record does not lead to what lies in {directory}")


def memory_directory() -> str | None:
    """A place where a sync costs nothing: what is durable is decided by the record alone."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@dataclass
class _Open:
    """What a descriptor leads to, and where its next plain write goes."""

    file: int
    at: int = 0


@dataclass
class Reader:
    directory: Path
    notes: Path
    _open: dict[int, _Open] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)
    _passing: set[int] = field(default_factory=set)
    # For each file when the calls that changed it had ended.
    _changes: dict[int, list[int]] = field(default_factory=dict)
    _notes_at: int | None = None

    def events(self, made: Iterable[Call]) -> Iterator[Event]:
        for call in made:
            yield from self._events_of(call)

    def _events_of(self, call: Call) -> Iterator[Event]:
        match call.name:
            case "open" | "openat":
                yield from self._opened(call)
            case "close":
                self._open.pop(call.number(0), None)
                self._notes_at = None if call.number(0) == self._notes_at else self._notes_at
            case "write" if call.number(0) == self._notes_at:
                yield said(call.data(1))
            case "write" | "pwrite64":
                yield from self._written(call)
            case "ftruncate":
                yield from self._truncated(call)
            case "fsync" | "fdatasync":
                yield from self._synced(call)
            case "unlink" | "unlinkat":
                yield from self._unlinked(call)
            case "rename" | "renameat" | "renameat2":
                yield from self._renamed(call)
            case _:
                self._refuse(call)

    def _opened(self, call: Call) -> Iterator[Event]:
        path, flags = call.path(-2), call.number(-1)
        self._open.pop(call.result, None)
        if path == self.notes:
            self._notes_at = call.result
        elif path == self.directory and flags & os.O_TMPFILE != os.O_TMPFILE:  # a nameless file
            self._open[call.result] = _Open(_DIRECTORY)
        elif path.parent == self.directory:
            yield from self._found_or_made(path.name, flags, call)

    def _found_or_made(self, name: str, flags: int, call: Call) -> Iterator[Event]:
        if flags & os.O_APPEND:
            raise TraceError(f"{name} was opened to append")
        new = name not in self._names
        file = self._names.setdefault(name, len(self._changes))
        self._open[call.result] = _Open(file)
        if new:
            self._changes[file] = []
            if name.endswith(_PASSING):
                self._passing.add(file)
            else:
                yield Link(name, file)
        elif flags & os.O_TRUNC and file not in self._passing:
            self._changes[file].append(call.ended)
            yield Truncate(file, 0)

    def _written(self, call: Call) -> Iterator[Event]:
        if (opened := self._ours(call)) is None:
            return
        data = call.data(1)[: call.result]
        at = call.number(3) if call.name == "pwrite64" else opened.at
        if call.name == "write":
            opened.at += call.result
        self._changes[opened.file].append(call.ended)
        yield Write(opened.file, at, data)

    def _truncated(self, call: Call) -> Iterator[Event]:
        if (opened := self._ours(call)) is not None:
            self._changes[opened.file].append(call.ended)
            yield Truncate(opened.file, call.number(1))

    def _synced(self, call: Call) -> Iterator[Event]:
        opened = self._open.get(call.number(0))
        if opened is not None and opened.file == _DIRECTORY:
            yield from () if call.result else [SyncDirectory()]
        elif (opened := self._ours(call)) is not None:
            before = [ended for ended in self._changes[opened.file] if ended < call.begun]
            yield Sync(opened.file, len(before), failed=call.result != 0)

    def _unlinked(self, call: Call) -> Iterator[Event]:
        path = call.path(-1)
        if path.parent == self.directory:
            file = self._names.pop(path.name)
            if file not in self._passing:
                yield Unlink(path.name)

    def _renamed(self, call: Call) -> Iterator[Event]:
        old, new = call.path(0 if call.name == "rename" else 1), call.path(-1)
        if self.directory in {old.parent, new.parent}:
            file = self._names[new.name] = self._names.pop(old.name)
            yield Link(new.name, file, instead_of=old.name)

    def _ours(self, call: Call) -> _Open | None:
        opened = self._open.get(call.number(0))
        return None if opened is None or opened.file in self._passing else opened

    def _refuse(self, call: Call) -> None:
        """An error where it means a file of ours."""
        if _may_change(call) and (call.name == "io_uring_setup" or self._means_ours(call)):
            raise TraceError(f"a change that is not understood: {call}")

    def _means_ours(self, call: Call) -> bool:
        given = list(zip(UNEXPECTED[call.name], call.args, strict=True))
        paths = [call.path(at) for at, (kind, _) in enumerate(given) if kind == "p"]
        opened = [self._open.get(int(value)) for kind, value in given if kind == "d"]
        return any(path.is_relative_to(self.directory) for path in paths) or any(
            one is not None and one.file not in self._passing for one in opened
        )


def _may_change(call: Call) -> bool:
    """Locks do not, nor does memory that is private or for reading."""
    match call.name:
        case "mmap":
            return bool(call.number(3) & mmap.MAP_SHARED and call.number(2) & mmap.PROT_WRITE)
        case "fcntl":
            return call.number(1) in (fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC)
    return True


def said(note: bytes) -> Said:
    """What the workload wrote down."""
    kind, *rest = json.loads(note)
    match kind, rest:
        case "trying", [int(number), str(state)]:
            return Trying(number, state)
        case "commit", [int(number)]:
            return Commit(number)
        case "begun", [int(step), dict(what)]:
            return Begun(step, what)
        case "acknowledged", [int(step)]:
            return Acknowledged(step)
    raise TraceError(f"no note of a workload: {note[:200]!r}")
