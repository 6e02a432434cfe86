"""The benchmark suite at work: contenders that fail, hang or leave things behind; environments."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks.environments import ROOT, Environment, here, packages, prepare, versions
from benchmarks.figures import Run
from benchmarks.running import measure, run_once, turns
from benchmarks.suite import Contender, Workload

SLACK = 3

SUITE = Workload(
    name="queue",
    title="A queue",
    parameters={"requests": 1_000, "mode": "usual"},
    quick_parameters={"requests": 10},
    contenders=(
        Contender("us", "benchmarks.ours.queue"),
        Contender("fast peer", "benchmarks.peers.fast", "fast"),
        Contender("slow peer", "benchmarks.peers.slow", "slow"),
    ),
    metrics=(),
    needs=(),
)


class Silent:
    def begins(self, workload: Workload, contender: Contender, number: int) -> None: ...

    def ended(self, workload: Workload, contender: Contender, run: Run) -> None: ...


# --- running -------------------------------------------------------------------------------------


def test_every_round_begins_with_another() -> None:
    order = [contender.name for _, contender in turns(SUITE.contenders, 3)]
    assert order == [
        *("us", "fast peer", "slow peer"),
        *("fast peer", "slow peer", "us"),
        *("slow peer", "us", "fast peer"),
    ]


def test_settings_go_over_parameters_and_quick_over_both() -> None:
    slow = Contender("slow", "m", settings={"mode": "slow", "requests": 500})
    assert SUITE.given_to(slow) == {"workload": "queue", "requests": 500, "mode": "slow"}
    assert SUITE.given_to(slow, quick=True)["requests"] == 10


Maker = Callable[[str], Contender]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    """Makes a contender of a few lines, found beside the suite."""

    def make(body: str) -> Contender:
        text = f"import os, sys, time\nfrom benchmarks.contract import *\n{body}\n"
        (tmp_path / "contender.py").write_text(text)
        return Contender("it", "contender")

    monkeypatch.setattr("benchmarks.running.ROOT", f"{ROOT}{os.pathsep}{tmp_path}")
    return make


def run(contender: Contender, timeout: float = 30.0) -> Run:
    suite = replace(SUITE, timeout=timeout)
    with TemporaryDirectory() as place:
        return run_once(suite, contender, sys.executable, 1, Path(place), quick=True)


def test_a_contender_is_given_parameters_and_an_empty_folder(script: Maker) -> None:
    done = run(
        script(
            "given = parameters()\n"
            "tell({'requests': given['requests'], 'files': len(os.listdir(given['folder']))})"
        )
    )
    assert (done.metrics, done.problem) == ({"requests": 10.0, "files": 0.0}, "")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise RuntimeError('no such broker')", "RuntimeError: no such broker"),
        ("sys.exit(3)", "ended with 3 and said nothing"),
        ("os.kill(os.getpid(), 9)", "ended with -9 and said nothing"),
        ("print('done')", "the last line is no JSON object of numbers: 'done'"),
    ],
)
def test_a_contender_that_fails_is_reported(script: Maker, body: str, problem: str) -> None:
    done = run(script(body))
    assert (done.metrics, done.problem) == ({}, problem)


def test_one_that_hangs_is_ended_with_all_it_started_and_not_asked_again(
    script: Maker, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    body = (
        "import subprocess\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pids)!r}, 'a').write(f'{{child.pid}}\\n')\n"
        "time.sleep(60)"
    )
    workload = replace(SUITE, contenders=(script(body),), timeout=5.0)
    began = time.monotonic()
    found = measure(workload, {None: here()}, 3, Silent(), tmp_path)
    assert time.monotonic() - began < 5 * SLACK
    assert [one.problem for one in found] == ["not done after 5 s"] * 3
    (pid,) = pids.read_text().split()
    assert not _runs(int(pid))


def test_one_that_leaves_a_process_behind_is_not_waited_for(script: Maker) -> None:
    done = run(
        script(
            "import subprocess\n"
            "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
            "tell({'drain': 1})"
        )
    )
    assert done.metrics == {"drain": 1.0}
    assert done.seconds < 10


def test_others_go_on(script: Maker, tmp_path: Path) -> None:
    good = script("tell({'drain': 1})")
    lost = Contender("lost", "benchmarks.peers.lost", "lost")
    workload = replace(SUITE, contenders=(lost, good))
    environments = {None: here(), "lost": Environment("lost", "python", "no such package")}
    found = measure(workload, environments, 2, Silent(), tmp_path)
    assert [(one.contender, one.problem) for one in found] == [
        ("lost", "no such package"),
        ("it", ""),
        ("it", ""),
        ("lost", "no such package"),
    ]


def _runs(pid: int) -> bool:
    """Not gone, and no zombie that nobody has waited for."""
    status = Path(f"/proc/{pid}/stat")
    for _ in range(100):
        if not status.exists() or status.read_text().split()[2] == "Z":
            return False
        time.sleep(0.02)
    return True


# --- environments --------------------------------------------------------------------------------


def installing(monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A few lines instead of pip; ``made`` is where they install to."""

    def commands(made: Path, file: Path) -> list[list[str]]:
        head = f"import pathlib; made = pathlib.Path({str(made)!r})"
        return [[sys.executable, "-c", f"{head}\n{body}"]]

    monkeypatch.setattr("benchmarks.environments.commands", commands)


def test_what_does_not_install_is_reported_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some.txt").write_text("some\n")
    installing(monkeypatch, "made.mkdir(); raise SystemExit('ERROR: No matching distribution')")
    assert prepare("some", tmp_path / "made", tmp_path).problem == "ERROR: No matching distribution"
    installing(monkeypatch, "made.mkdir()")
    assert prepare("some", tmp_path / "made", tmp_path).problem == ""
    assert "there is no" in prepare("none", tmp_path / "made", tmp_path).problem


def test_what_is_made_stays_until_its_requirements_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installing(monkeypatch, "made.mkdir(); (made.parent / 'log').open('a').write('made ')")
    for text in ("some\n", "some\n", "some>1\n"):
        (tmp_path / "some.txt").write_text(text)
        prepare("some", tmp_path / "made", tmp_path)
    assert (tmp_path / "made" / "log").read_text() == "made made "


def test_versions_are_asked_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text(
        "# the peer\npytest>=1  # a comment\nredis[hiredis]\nnone-such"
    )
    assert packages(tmp_path / "some.txt") == ["pytest", "redis", "none-such"]
    found = versions(Environment("some", sys.executable), tmp_path)
    assert found == {"pytest": pytest.__version__, "redis": found["redis"], "none-such": "unknown"}
