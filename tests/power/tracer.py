"""The process that traces another: ``python -m tests.power.tracer OPTIONS COMMAND…``.

Its child and all threads of it stop before and after each system call that makes or changes files;
what they pass to it is read from their memory. The calls go to the file that the options name, and
the exit code is that of the command.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tests.power import ptrace
from tests.power.machine import Machine, this_machine
from tests.power.trace import NONE, SHAPES, SYNCS, Call, TraceError

_ALL_THREADS = 0x40000000  # __WALL
_RETURNING = signal.SIGTRAP | 0x80
_LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True)
class _Begun:
    name: str
    args: tuple[int | bytes, ...]
    at: int
    fails: bool


class Tracer:
    def __init__(self, machine: Machine, failing: range = NONE) -> None:
        self.calls: list[Call] = []
        self._machine, self._failing = machine, failing
        self._names = {number: name for name, number in machine.numbers.items()}
        self._moment = 0
        self._begun: dict[int, _Begun] = {}
        self._syncs: Counter[int] = Counter()
        self._memory = -1

    def run(self, command: list[str]) -> int:
        child = self._start(command)
        while True:
            thread, status = os.waitpid(-1, _ALL_THREADS)
            if os.WIFSTOPPED(status):
                self._stopped(thread, status >> 16, os.WSTOPSIG(status))
            elif thread == child:
                return os.waitstatus_to_exitcode(status)

    def _start(self, command: list[str]) -> int:
        is_traced, tell = os.pipe()
        child = os.fork()
        if not child:
            os.close(tell)
            self._become(command, is_traced)
        _seize(child)
        os.write(tell, b".")
        os.close(is_traced)
        os.close(tell)
        return child

    def _become(self, command: list[str], is_traced: int) -> NoReturn:
        if not os.read(is_traced, 1):
            os._exit(1)
        ptrace.stop_at(self._names, self._machine.architecture)
        os.execv(command[0], command)

    def _stopped(self, thread: int, event: int, stopped_by: int) -> None:
        try:
            if event == ptrace.CALLING:
                self._called(thread)
            elif event in (ptrace.FORKED, ptrace.VFORKED):
                raise TraceError("it started another process, which has descriptors of its own")
            else:
                self._went_on(thread, event, stopped_by)
        except ProcessLookupError:  # another thread has just ended the process
            return

    def _went_on(self, thread: int, event: int, stopped_by: int) -> None:
        if event == ptrace.EXECUTED:
            self._memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY)
        elif stopped_by == _RETURNING:
            self._returned(thread, self._begun.pop(thread))
        is_signal = not event and stopped_by != _RETURNING
        ptrace.resume(thread, signal=stopped_by if is_signal else 0)

    def _called(self, thread: int) -> None:
        self._moment += 1
        asked = ptrace.asked(thread)
        name = self._names[asked.number]
        begun = _Begun(name, self._read(name, asked.args), self._moment, self._fails(thread, name))
        if name == "close":  # from now on another thread may get its number
            self.calls.append(Call(name, begun.args, 0, begun.at, begun.at))
        else:
            self._begun[thread] = begun
        if begun.fails:
            self._machine.skip(thread)
        ptrace.resume(thread, until_return=name != "close")

    def _fails(self, thread: int, name: str) -> bool:
        if name != "fdatasync":
            return False
        self._syncs[thread] += 1
        return self._syncs[thread] in self._failing

    def _returned(self, thread: int, begun: _Begun) -> None:
        self._moment += 1
        result = ptrace.returned(thread)
        if begun.fails:
            result = self._failed(thread, result)
        if result >= 0 or begun.name in SYNCS:
            self.calls.append(Call(begun.name, begun.args, result, begun.at, self._moment))

    def _failed(self, thread: int, result: int) -> int:
        if result == 0:
            raise TraceError("a sync that was to fail has been made")
        self._machine.answer(thread, -errno.EIO)
        return -errno.EIO

    def _read(self, name: str, args: tuple[int, ...]) -> tuple[int | bytes, ...]:
        return tuple(self._value(kind, args, at) for at, kind in enumerate(SHAPES[name]))

    def _value(self, kind: str, args: tuple[int, ...], at: int) -> int | bytes:
        match kind:
            case "d":
                return (args[at] & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
            case "b":
                return self._bytes(args[at], args[at + 1])
            case "p":
                return self._path(args[at])
        return args[at]

    def _bytes(self, address: int, size: int) -> bytes:
        data = os.pread(self._memory, size, address)
        if len(data) != size:
            raise TraceError(f"{size} bytes at {address:#x} were to be written, {len(data)} read")
        return data

    def _path(self, address: int) -> bytes:
        path, end, _ = os.pread(self._memory, _LONGEST_PATH, address).partition(b"\0")
        if not end:
            raise TraceError(f"a path without an end: {path!r}")
        return path


def _seize(child: int) -> None:
    try:
        ptrace.seize(child)
    except OSError as refused:
        why = "this system does not let a process trace its own child (PTRACE_SEIZE)"
        raise TraceError(f"{why}: {refused}") from refused


def main(options: str, *command: str) -> int:
    output, first, after = json.loads(options)
    tracer = Tracer(this_machine(), range(first, after))
    code = tracer.run(list(command))
    with Path(output).open("wb") as file:
        pickle.dump(tracer.calls, file)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
