"""Another process, run to its end or until patience ends, with what it says kept in a file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.reliability.circumstances import ROOT

_GLANCE = 0.2
_LAST_WORDS = 20.0
_TAIL = 250
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Ran(NamedTuple):
    """``code`` is ``None`` for what did not end in time."""

    code: int | None
    seconds: float
    text: str


def run(words: Sequence[str], patience: float, log: Path, glance: Callable[[], None]) -> Ran:
    """``glance`` is called now and then, to say how far it is."""
    start = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = _wait(process, start + patience, glance)
        finally:
            _end(process)
    return Ran(code, time.monotonic() - start, tail(log))


def _environment() -> dict[str, str]:
    """This package, not another one that happens to be installed."""
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), known)))}


def _wait(process: subprocess.Popen[bytes], until: float, glance: Callable[[], None]) -> int | None:
    while time.monotonic() < until:
        glance()
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_GLANCE)
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """It and what it has started; first asked, so that it can end its own servers."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_LAST_WORDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tail(log: Path) -> str:
    """The last lines, each as it was last rewritten; of those that told of progress, the last."""
    text = _COLOURS.sub("", log.read_bytes().decode(errors="replace"))
    lines = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    kept = [line for line, after in pairwise([*lines, ""]) if _stays(line, after)]
    return "\n".join(kept[-_TAIL:])


def _stays(line: str, after: str) -> bool:
    """Whether the next line is about something else."""
    subject, colon, _ = line.partition(": ")
    return not (colon and after.startswith(subject + colon))


def last_line(log: Path) -> str:
    return tail(log).rpartition("\n")[2] if log.exists() else ""
