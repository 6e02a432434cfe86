"""Taking turns: every contender in a process of its own, once a round, with all it needs anew."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

from benchmarks.contract import told
from benchmarks.environments import ROOT, Environment, last_line
from benchmarks.figures import Run
from benchmarks.servers import running_redis
from benchmarks.site import site
from benchmarks.suite import Contender, Need, Workload


class Watcher(Protocol):
    """Is told how it goes."""

    def begins(self, workload: Workload, contender: Contender, number: int) -> None: ...

    def ended(self, workload: Workload, contender: Contender, run: Run) -> None: ...


def turns(contenders: tuple[Contender, ...], rounds: int) -> Iterator[tuple[int, Contender]]:
    """Round by round, and each round begins with another, so that none always comes after the
    same one."""
    for number in range(rounds):
        first = number % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            yield number + 1, contender


def measure(
    workload: Workload,
    environments: Mapping[str | None, Environment],
    rounds: int,
    watcher: Watcher,
    place: Path,
    *,
    quick: bool = False,
) -> list[Run]:
    """All runs of a workload. Who fails has failed alone; who hangs is not asked again."""
    runs: list[Run] = []
    hopeless: dict[str, str] = {}
    for number, contender in turns(workload.contenders, rounds):
        watcher.begins(workload, contender, number)
        environment = environments[contender.environment]
        problem = environment.problem or hopeless.get(contender.name, "")
        if problem:
            run = Run(contender.name, number, {}, problem)
        else:
            run = run_once(workload, contender, environment.python, number, place, quick=quick)
        if environment.problem or run.seconds >= workload.timeout:
            hopeless[contender.name] = run.problem
        runs.append(run)
        watcher.ended(workload, contender, run)
    return runs


def run_once(
    workload: Workload,
    contender: Contender,
    python: str,
    number: int,
    place: Path,
    *,
    quick: bool = False,
) -> Run:
    """One run, in a folder of its own that stays until all are done.

    A file system such as ext4 is slow to make files where many have just been deleted; who comes
    next must not pay for that.
    """
    given = workload.given_to(contender, quick=quick)
    with ExitStack() as stack:
        work = Path(tempfile.mkdtemp(dir=place))
        (work / "data").mkdir()
        given["folder"] = str(work / "data")
        for need in workload.needs:
            given |= _started(stack, need, given)
        command = [python, "-m", contender.module, json.dumps(given)]
        began = time.perf_counter()
        metrics, problem = run_process(command, work, workload.timeout)
        return Run(contender.name, number, metrics, problem, time.perf_counter() - began)


def _started(stack: ExitStack, need: Need, given: Mapping[str, Any]) -> dict[str, str]:
    if need == "redis":
        return {"redis_url": stack.enter_context(running_redis("--loglevel", "warning"))}
    kind = given.get("site_kind", "bare")
    return {"site_url": stack.enter_context(site(int(given["pages"]), kind))}


def run_process(command: list[str], work: Path, timeout: float) -> tuple[Mapping[str, float], str]:
    """What it told and what went wrong. Its output goes to files: a pipe would be held open by
    whatever process it left behind."""
    output, errors = work / "stdout", work / "stderr"
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            command, cwd=work, env=_variables(), stdout=out, stderr=err, start_new_session=True
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            return {}, f"not done after {timeout:.0f} s"
        finally:
            _end(process)
    if code:
        said = last_line(errors.read_text(errors="replace"))
        return {}, said or f"ended with {code} and said nothing"
    return _told(output.read_text(errors="replace"))


def _told(output: str) -> tuple[Mapping[str, float], str]:
    try:
        return told(output), ""
    except ValueError as error:
        return {}, str(error)


def _variables() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process and all that it started: they are a group of their own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
