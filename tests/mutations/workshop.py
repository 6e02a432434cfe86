"""A copy of the code for mutmut to work on, and mutmut at work there, bounded in time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.mutations.plan import PACKAGE, Group
from tests.mutations.verdicts import Mutant, mutants_in

HOME = Path(__file__).parents[2]
BENCH = HOME / ".mutations"
_COPIED = (PACKAGE, "tests", "benchmarks", "docs")
_LOOK_AGAIN = 0.5
_GRACE = 15.0

# A mutant may need several times as long as the tests did: the machine is not always as busy.
_SETTINGS = """\
[mutmut]
source_paths = {package}
only_mutate =
{modules}
also_copy =
    docs
    benchmarks
    README.md
pytest_add_cli_args =
    -p
    tests.mutations.selection
    -p
    no:xdist
    -p
    no:cacheprovider
pytest_add_cli_args_test_selection =
{tests}
timeout_multiplier = 3
timeout_constant = 20
"""


class Workshop:
    """A folder per group: its copy, and under ``mutants/`` what mutmut makes and finds there."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.place = BENCH / group.name

    def set_up(self, *, anew: bool = True) -> None:
        if anew:
            shutil.rmtree(self.place, ignore_errors=True)
        for name in _COPIED:
            leave = shutil.ignore_patterns("__pycache__")
            shutil.copytree(HOME / name, self.place / name, dirs_exist_ok=True, ignore=leave)
        for name in ("pyproject.toml", "README.md"):
            shutil.copy2(HOME / name, self.place / name)
        (self.place / "setup.cfg").write_text(settings_for(self.group))

    def mutants(self) -> list[Mutant]:
        return mutants_in(self.place, self.group.modules)

    def work(
        self, deadline: float, processes: int, names: Sequence[str], watch: Callable[[], None]
    ) -> None:
        """Try all mutants (or those named) until ``deadline``, of the monotonic clock."""
        with (self.place / "output.txt").open("w") as output:
            running = self._start(processes, names, output.fileno())
            try:
                while running.poll() is None and time.monotonic() < deadline:
                    watch()
                    time.sleep(_LOOK_AGAIN)
            finally:
                stop(running)
        self._complain_unless_started(running.returncode)

    def _start(self, processes: int, names: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(processes), *names]
        environment = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.Popen(
            command,
            cwd=self.place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _complain_unless_started(self, returncode: int) -> None:
        """What mutmut says when the tests fail before anything is mutated is worth reading."""
        if returncode > 0:
            said = (self.place / "output.txt").read_text(errors="replace")[-4_000:]
            raise RuntimeError(f"mutmut gave up on {self.group.name}:\n{said}")


def settings_for(group: Group) -> str:
    paths = [f"{PACKAGE}/{module.replace('.', '/')}.py" for module in group.modules]
    return _SETTINGS.format(package=PACKAGE, modules=_indented(paths), tests=_indented(group.tests))


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def stop(running: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does; what is left of its own session after that is ended."""
    if running.poll() is None:
        running.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            running.wait(_GRACE)
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
