"""A process for each mutant: forked when all is imported, it runs tests until one fails."""

from __future__ import annotations

import gc
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mutmut.mutation.trampoline import set_mutant_under_test

from tests.mutations.plan import PACKAGE
from tests.mutations.reach import Reach, TestFailed, first_failure
from tests.mutations.verdicts import Mutant, Verdict

_LOOK_AGAIN = 0.002
# A pipe holds that much without being read.
_LONGEST = 30_000
_MEMORY = 4 << 30


@dataclass(frozen=True)
class Trial:
    mutant: Mutant
    pid: int
    reading: int


class Trials:
    def __init__(self, reach: Reach, processes: int, note: Callable[[Mutant], None]) -> None:
        self._reach = reach
        self._processes = processes
        self._note = note
        self._running: list[Trial] = []

    def run(self, mutants: Iterable[Mutant]) -> None:
        try:
            for mutant in mutants:
                self._wait(until_below=self._processes)
                self._begin(mutant)
            self._wait(until_below=1)
        finally:
            for trial in self._running:
                _kill(trial.pid)

    def check_unchanged(self, items: Sequence[pytest.Item]) -> None:
        """Run again in a fork they must pass, or each mutant would seem to be noticed."""
        forget_caches()
        trial = self._fork(Mutant("", "", "", ""), items)
        ended = _outcome(trial, os.waitpid(trial.pid, 0)[1])
        if ended.verdict is not Verdict.SURVIVED:
            raise TestFailed(ended.by)

    def _begin(self, mutant: Mutant) -> None:
        tests = self._reach.tests_for(mutant.function)
        if not tests:
            self._note(replace(mutant, verdict=Verdict.UNTESTED))
            return
        self._running.append(self._fork(mutant, tests))

    def _wait(self, until_below: int) -> None:
        while len(self._running) >= until_below:
            for trial in list(self._running):
                pid, status = os.waitpid(trial.pid, os.WNOHANG)
                if pid:
                    self._end(trial, status)
            time.sleep(_LOOK_AGAIN)

    def _end(self, trial: Trial, status: int) -> None:
        self._running.remove(trial)
        shutil.rmtree(_folder_of(trial.pid), ignore_errors=True)
        ended = _outcome(trial, status)
        by = ended.by.partition("\n")[0]
        if by:
            self._reach.killed(ended.function, by)
        self._note(replace(ended, by=by))

    def _fork(self, mutant: Mutant, tests: Sequence[pytest.Item]) -> Trial:
        gc.freeze()
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._live(mutant, tests, writing)
        os.close(writing)
        return Trial(mutant, pid, reading)

    def _live(self, mutant: Mutant, tests: Sequence[pytest.Item], writing: int) -> None:
        """In the child, which never returns. Whatever goes wrong here was noticed."""
        code = 1
        try:
            _confine()
            _settle_in(tests[0].config)
            set_mutant_under_test(mutant.name)
            failure = first_failure(tests, self._wind_up)
            os.write(writing, failure.encode(errors="replace")[:_LONGEST])
            code = 1 if failure else 0
        finally:
            os._exit(code)

    def _wind_up(self, item: pytest.Item) -> None:
        """The alarm ends the process where a test does not end."""
        signal.setitimer(signal.ITIMER_REAL, self._reach.patience_for(item))


def _outcome(trial: Trial, status: int) -> Mutant:
    with os.fdopen(trial.reading, "rb") as pipe:
        by = pipe.read().decode(errors="replace")
    code = os.waitstatus_to_exitcode(status)
    dead = Verdict.TIMEOUT if code == -signal.SIGALRM else Verdict.KILLED
    return replace(trial.mutant, verdict=dead if code else Verdict.SURVIVED, by=by)


def _folder_of(pid: int) -> Path:
    return Path("tmp", str(pid)).absolute()


def _settle_in(config: Any) -> None:
    """A folder of its own: pytest looks through that of all, which fills with what was left."""
    folder = _folder_of(os.getpid())
    folder.mkdir(parents=True)
    config._tmp_path_factory._basetemp = folder


def _confine() -> None:
    """Nothing on the screen, and no memory without end."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def forget_caches() -> None:
    """What the unchanged code has answered must not stand for what a mutant would answer."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == PACKAGE:
            for value in list(vars(module).values()):
                getattr(value, "cache_clear", lambda: None)()
