"""Ledgers: what processes did, written down by themselves, one line of JSON at a time.

A call that changes something is noted before and after; who dies in between leaves a call without
an end. A line is one ``write`` to a file that is only appended to, so a killed process loses
nothing that it had noted. Times are those of the machine's monotonic clock, common to all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

SUFFIX = ".ledger"
DIED = "died"
# What may be done to the store: it is away, away with all processes, away for moments, full, or
# late with its answers.
OUTAGE, ALL, FLAP, FULL, SLOW = "server killed", "all killed", "flapping", "full", "slow"


@dataclass(frozen=True, slots=True)
class Call:
    """Something asked of the queue. Without an end its process died meanwhile."""

    op: str
    names: tuple[str, ...]
    token: str
    process: str
    start: float
    end: float | None
    outcome: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened to a process, or that it was told."""

    kind: str
    process: str
    at: float
    about: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was done to the store, or to the way there."""

    kind: str
    start: float
    end: float


@dataclass
class Records:
    calls: list[Call] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


class Pen:
    """Writes in the name of one process."""

    def __init__(self, path: Path, process: str) -> None:
        self.process = process
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._calls = 0

    def begin(self, op: str, names: Sequence[str], token: str = "") -> int:
        self._calls += 1
        self._write(op=op, call=self._calls, names=names, token=token, start=time.monotonic())
        return self._calls

    def end(self, call: int, outcome: str) -> None:
        self._write(call=call, end=time.monotonic(), outcome=outcome)

    def whole(
        self, op: str, names: Sequence[str], start: float, outcome: str, token: str = ""
    ) -> None:
        """A call that needs no mark before it: without an answer, it is as if it had not been."""
        end = time.monotonic()
        self._write(op=op, names=names, token=token, start=start, end=end, outcome=outcome)

    def note(self, kind: str, about: object = "", process: str = "") -> None:
        line = {"note": kind, "about": str(about), "at": time.monotonic()}
        self._write(**line, **({"process": process} if process else {}))

    def fault(self, kind: str, start: float) -> None:
        self._write(fault=kind, start=start, end=time.monotonic())

    def close(self) -> None:
        os.close(self._file)

    def _write(self, **line: Any) -> None:
        os.write(self._file, orjson.dumps({"process": self.process, **line}) + b"\n")


class Reader:
    """Reads ledgers as they grow. What is torn at the end of one is not there yet."""

    def __init__(self) -> None:
        self._offsets: dict[Path, int] = {}
        self._open: dict[tuple[str, int], Call] = {}

    def news(self, paths: Iterable[Path]) -> Records:
        """All that has been written since the last time."""
        records = Records()
        for path in paths:
            for line in self._new_lines(path):
                self._take(line, records)
        return records

    def unfinished(self) -> list[Call]:
        """Calls that have begun and not ended so far."""
        return list(self._open.values())

    def _new_lines(self, path: Path) -> Iterator[dict[str, Any]]:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offsets[path] = self._offsets.get(path, 0) + len(line)
                yield orjson.loads(line)

    def _take(self, line: dict[str, Any], records: Records) -> None:
        if "note" in line:
            about = line["about"]
            records.notes.append(Note(line["note"], line["process"], line["at"], about))
        elif "fault" in line:
            records.faults.append(Fault(line["fault"], line["start"], line["end"]))
        elif "op" not in line:
            begun = self._open.pop((line["process"], line["call"]))
            records.calls.append(_ended(begun, line["end"], line["outcome"]))
        else:
            self._begin_or_keep(line, records)

    def _begin_or_keep(self, line: dict[str, Any], records: Records) -> None:
        number = line.pop("call", None)
        end, outcome = line.pop("end", None), line.pop("outcome", DIED)
        call = Call(**{**line, "names": tuple(line["names"])}, end=end, outcome=outcome)
        if number is None:
            records.calls.append(call)
        else:
            self._open[call.process, number] = call


def ledgers(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


def read_all(folder: Path) -> Records:
    """Every ledger of a run that is over."""
    reader = Reader()
    records = reader.news(ledgers(folder))
    records.calls += reader.unfinished()
    return records


def _ended(call: Call, end: float, outcome: str) -> Call:
    return Call(call.op, call.names, call.token, call.process, call.start, end, outcome)
