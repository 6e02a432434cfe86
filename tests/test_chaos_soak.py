"""The soak's own parts: who is left alone, who grows, and who is waited for."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import mischief as faults
from tests.chaos.growing import Growth, Size, growth, watch
from tests.chaos.ledger import SUFFIX, Pen
from tests.chaos.mischief import Mischief
from tests.chaos.processes import Processes, Slot
from tests.chaos.stores import SQLitePlace
from tests.chaos.tiers import SHORT, SOAK, Step, plan
from tests.harness import background, eventually


def _orders(process: str, ledger: str) -> dict[str, Any]:
    return {}


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    pen = Pen(tmp_path / f"conductor{SUFFIX}", "conductor")
    return Processes(tmp_path, pen, tmp_path / "output")


def test_who_is_spared_is_never_chosen(processes: Processes) -> None:
    processes.slots = [
        Slot("worker", f"w{number}", _orders, pid=1, spared=number < 2) for number in range(4)
    ]
    dice = random.Random(1)
    chosen = {processes.choose("worker", dice).name for _ in range(100)}  # type: ignore[union-attr]
    assert chosen == {"w2", "w3"}


def test_a_soak_kills_nobody_who_is_to_live_on() -> None:
    """What kills everybody would leave nobody to be looked at."""
    for has_server in (True, False):
        tracks = plan(SOAK, 7, has_server=has_server).values()
        kinds = {step.kind for steps in tracks for step in steps}
        assert {"kill", "stop", "fill"} <= kinds
        assert "kill all" not in kinds
    assert SOAK.poison_every == 0


def _looks(process: str, memory: list[float], files: int = 10) -> list[Size]:
    return [Size(process, float(at), size, files) for at, size in enumerate(memory)]


def test_growth_is_from_after_the_warming_up_to_the_end() -> None:
    """What is loaded at first is no growth, nor is a peak in between."""
    steady = _looks("w0.1", [10.0, 40.0, *[50.0] * 4, 90.0, *[50.0] * 3])
    growing = _looks("w1.1", [float(10 * at) for at in range(10)])
    short = _looks("w2.1", [1.0, 2.0, 3.0, 4.0, 500.0])
    found = growth([*steady, *growing, *short], at_least=9.0)
    assert found == {"w0.1": Growth(0.0, 0.0), "w1.1": Growth(60.0, 0.0)}


async def test_a_process_is_looked_at_as_long_as_it_is_there() -> None:
    here = Slot("worker", "w0", _orders, process="w0.1", pid=os.getpid())
    gone = Slot("worker", "w1", _orders, process="w1.1", pid=None)
    nobody = Slot("worker", "w2", _orders, process="w2.1", pid=2**22 + 1)
    sizes: list[Size] = []
    async with background(watch(lambda: [here, gone, nobody], sizes, 0.01)):
        await eventually(lambda: _true(len(sizes) > 2))
    assert {size.process for size in sizes} == {"w0.1"}
    assert sizes[0].memory > 5.0
    assert sizes[0].files > 2


async def _true(value: bool) -> bool:
    return value


async def test_who_was_stopped_is_not_waited_for_in_its_successor(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was: and as nobody else was killed meanwhile, nothing happened any more."""
    monkeypatch.setattr(faults, "_STOPPED_TWICE", 1.0)
    slot = Slot("worker", "w0", _orders, process="w0.1", pid=1)
    processes.slots = [slot]
    stopped: list[str] = []

    def stop(which: Slot) -> None:
        stopped.append(which.process)
        which.gone.set()
        which.code, which.process, which.gone = 0, "w0.2", asyncio.Event()

    monkeypatch.setattr(processes, "stop", stop)
    pen = Pen(tmp_path / f"other{SUFFIX}", "other")
    mischief = Mischief(SHORT, SQLitePlace(tmp_path, None), processes, pen, seed=1)
    async with asyncio.timeout(5):
        await mischief.run([Step(0.0, "stop")], time.monotonic())
    assert (stopped, mischief.done["stop"]) == (["w0.1"], 1)
