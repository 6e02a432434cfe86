"""Another process, run to its end or until patience ends, with what it says kept in files.

Results are what it says on stdout, and are kept whole; on stderr it tells how far it is.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.reliability.circumstances import ROOT

_GLANCE = 0.2
_LAST_WORDS = 20.0
_LAST_LINES = 50
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Ran(NamedTuple):
    """``code`` is ``None`` for what did not end in time."""

    code: int | None
    seconds: float
    text: str


def be_interruptible() -> None:
    """By Ctrl-C, by SIGTERM, and where a shell has started us in the background, ignoring Ctrl-C:
    what we start would ignore it, too, and outlive us."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def run(words: Sequence[str], patience: float, log: Path, glance: Callable[[], None]) -> Ran:
    """``glance`` is called now and then, to say how far it is."""
    start = time.monotonic()
    with log.open("wb") as results, _beside(log).open("wb") as progress:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=results,
            stderr=progress,
            start_new_session=True,
        )
        try:
            code = _wait(process, start + patience, glance)
        finally:
            _end(process)
    return Ran(code, time.monotonic() - start, _said(log, code))


def _environment() -> dict[str, str]:
    """This package, not another one that happens to be installed; nothing said is lost with it."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


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


def _said(log: Path, code: int | None) -> str:
    """All results; where it did not end well, also what it said last beside them."""
    results, beside = _lines(log), _lines(_beside(log))[-_LAST_LINES:]
    if code == 0 or not beside:
        return "\n".join(results)
    return "\n".join([*results, "", "and at last, beside it:", *beside])


def last_line(log: Path) -> str:
    """How far it is."""
    return (_lines(_beside(log)) or _lines(log) or [""])[-1]


def _beside(log: Path) -> Path:
    return log.with_name(f"{log.name}.progress")


def _lines(path: Path) -> list[str]:
    """Each as it was last rewritten."""
    text = path.read_bytes().decode(errors="replace") if path.exists() else ""
    lines = _COLOURS.sub("", text).rstrip().split("\n")
    return [line.rstrip().rpartition("\r")[2] for line in lines] if any(lines) else []
