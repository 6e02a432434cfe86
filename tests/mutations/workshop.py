"""A copy of the code that may be spoiled, and the process at work in it, bounded in time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.mutations import verdicts
from tests.mutations.plan import PACKAGE, Group
from tests.mutations.verdicts import Mutant

HOME = Path(__file__).parents[2]
BENCH = HOME / ".mutations"
_LOOK_AGAIN = 0.5


class Workshop:
    """A folder per group."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.place = BENCH / group.name

    def set_up(self, *, anew: bool = True) -> None:
        if anew:
            shutil.rmtree(self.place, ignore_errors=True)
        for name in (PACKAGE, "tests", "benchmarks", "docs"):
            leave = shutil.ignore_patterns("__pycache__")
            shutil.copytree(HOME / name, self.place / name, dirs_exist_ok=True, ignore=leave)
        for name in ("pyproject.toml", "README.md"):
            shutil.copy2(HOME / name, self.place / name)
        (self.place / "setup.cfg").write_text(f"[mutmut]\nsource_paths = {PACKAGE}\n")

    def mutants(self) -> list[Mutant]:
        return verdicts.load(self.place)

    def work(self, deadline: float, processes: int, every: int, watch: Callable[[], None]) -> None:
        """Try every so many-th mutant until ``deadline``, of the monotonic clock."""
        with (self.place / "output.txt").open("w") as output:
            running = self._start(processes, every, output.fileno())
            try:
                while running.poll() is None and time.monotonic() < deadline:
                    watch()
                    time.sleep(_LOOK_AGAIN)
            finally:
                in_time = running.poll() is not None
                stop(running)
        if in_time and running.returncode:
            self._complain()

    def _start(self, processes: int, every: int, output: int) -> subprocess.Popen[bytes]:
        inside = [sys.executable, "-m", "tests.mutations.inside"]
        return subprocess.Popen(
            [*inside, self.group.name, str(processes), str(every), *self.group.modules],
            cwd=self.place,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _complain(self) -> None:
        said = (self.place / "output.txt").read_text(errors="replace")[-4_000:]
        raise RuntimeError(f"nothing can be said of {self.group.name}:\n{said}")


def stop(running: subprocess.Popen[bytes]) -> None:
    """It and all that it forked; what was found so far is on the disk."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
