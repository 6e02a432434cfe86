"""Simulated worlds: every promise holds in each, the same again, and what is broken is found."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.queue.sweeping import Heart
from data_fetcher_core.queue.transactional_engine import TransactionalEngine
from tests.evidence import Evidence, load
from tests.histories import RULES
from tests.simulation.__main__ import _BY_A_ZOMBIE, FOUND_WITHIN, _keep, _Progress, main
from tests.simulation.ablations import ALL, BY_NAME, Ablation, Engine, Patch
from tests.simulation.loop import Stuck, VirtualLoop, start_in
from tests.simulation.plan import KINDS, SMALL, Plan, draw, skewed, straight
from tests.simulation.process import Process, SkewedClock
from tests.simulation.replaying import first_of
from tests.simulation.rules import CRASHED, STUCK
from tests.simulation.running import Summary, find, run_many, run_seeds, simulate, skew_clocks
from tests.simulation.shrinking import shrink
from tests.simulation.world import World

SEEDS, PARTS = 200, 4


def assert_held(summary: Summary) -> None:
    """A seed that failed is shown as the command shows it."""
    if summary.failures:
        pytest.fail(first_of(summary.failures), pytrace=False)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_holds_in_every_world(part: int, shows: Evidence) -> None:
    seeds = range(part * SEEDS // PARTS, (part + 1) * SEEDS // PARTS)
    summary = run_many(seeds, 1, lambda _: None)
    assert_held(summary)
    shows("SIM", f"seeds on every change, part {part + 1} of {PARTS}", summary.seeds, at_least=50)
    shows("SIM", "worlds with a broken promise", len(summary.failures), exactly=0)
    assert all(summary.figures[kind] for kind in KINDS), summary.figures


def test_a_seed_that_fails_is_shown_as_the_command_shows_it() -> None:
    with BY_NAME["delays are cut short"].applied(), pytest.raises(pytest.fail.Exception) as failed:
        assert_held(run_seeds([1, 2]))
    told = str(failed.value)
    again = "python -m tests.simulation --seed 1 --world queue\n"
    assert told.startswith(f"seed 1 broke a promise; again: {again}")
    assert "  BROKEN  early: " in told
    assert {"enqueue", "lease"} <= {line.split()[3] for line in _events(told)}
    assert told.endswith("and 1 others: [(2, 'queue')]")


def _events(told: str) -> list[str]:
    """The lines of a history: what happened at last stands before what is left out or comes on."""
    _, _, history = told.partition(" outcome\n")
    return [line for line in history.splitlines() if re.match(r"\s+\d+\.\d+ ", line)]


def test_a_turn_that_waited_through_a_silence_is_not_taken_twice() -> None:
    """Somebody else had it when its process woke, before it was told so."""
    assert simulate(draw(7816), "fetch").violations == ()


def test_what_arrives_after_its_sender_has_left_is_dropped() -> None:
    """It was sent twice, without a key: see what is not promised."""
    assert simulate(draw(5554, SMALL)).violations == ()


def test_a_world_has_eight_workers_and_forty_requests() -> None:
    for seed in range(20):
        plan = draw(seed)
        assert (sum(plan.layout), len(plan.jobs)) == (8, 40)


def test_a_small_world_has_three_workers_at_most_and_eight_requests() -> None:
    plans = [draw(seed, SMALL) for seed in range(40)]
    assert {sum(plan.layout) for plan in plans} == {2, 3}
    assert {len(plan.jobs) for plan in plans} == {8}


def test_what_is_broken_shows_in_small_worlds_too() -> None:
    for name in ("unfenced settle", "no operation ids", "a retry loses the request"):
        assert find(BY_NAME[name], range(200), SMALL) is not None, name


# --- the same again ----------------------------------------------------------------------------


@pytest.mark.parametrize("world", ["queue", "fetch"])
def test_a_seed_gives_the_same_world_again(world: str) -> None:
    first = [simulate(draw(seed), world) for seed in range(4)]
    again = [simulate(draw(seed), world) for seed in range(4)]
    assert [one.trace for one in first] == [one.trace for one in again]
    assert [one.history for one in first] == [one.history for one in again]
    assert len({one.trace for one in first}) == 4


def test_and_in_another_process_whose_sets_have_another_order() -> None:
    script = (
        "from tests.simulation.running import simulate, draw\n"
        "print(*(simulate(draw(s), w).trace for s in range(3) for w in ('queue', 'fetch')))"
    )
    here = [simulate(draw(s), w).trace for s in range(3) for w in ("queue", "fetch")]
    for order in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": order},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.split() == here


def test_nothing_is_left_of_a_world() -> None:
    """Thousands of them in one process would become slower and slower."""
    run_seeds(range(40))
    gc.collect()
    assert not [left for left in gc.get_objects() if isinstance(left, World)]


def test_what_the_package_asks_for_time_and_chance_is_itself_again_afterwards() -> None:
    before = (time.time, os.urandom, random.getstate(), TransactionalEngine._count_beat)
    simulate(draw(0))
    assert (time.time, os.urandom, random.getstate(), TransactionalEngine._count_beat) == before


# --- clocks ------------------------------------------------------------------------------------


def test_a_clock_that_is_an_hour_wrong_changes_nothing(shows: Evidence) -> None:
    seeds = range(100, 105)
    worlds, differing = skew_clocks(seeds)
    shows("F27", "worlds with clocks an hour wrong, each way", worlds, at_least=10)
    shows("F27", "traces that differ by it", len(differing), exactly=0)


def test_a_queue_that_goes_by_its_own_clock_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TransactionalEngine, "_now", lambda _: round(time.time() * 1e6))
    assert simulate(straight(draw(100))).trace != simulate(skewed(draw(100))).trace
    assert skew_clocks([100]) == (2, [100])


# --- what is broken is found -------------------------------------------------------------------


@pytest.mark.parametrize("ablation", ALL, ids=lambda ablation: ablation.name)
def test_what_is_broken_is_found(ablation: Ablation, shows: Evidence) -> None:
    """First where it was found before; if the code has changed since then, from the beginning.
    Found is what breaks the rules that it must break, and nothing else does."""
    result = find(ablation, [ablation.hint]) or find(ablation, range(FOUND_WITHIN))
    assert result is not None, f"not found within {FOUND_WITHIN} seeds"
    shows("SIM", f"found: {ablation.name}, seed", result.plan.seed, at_most=FOUND_WITHIN)
    assert not simulate(result.plan, ablation.world).violations, "it is whole without"


def crash(*_: Any, **__: Any) -> Any:
    raise TypeError("a variant that does not fit the code any more")


@pytest.mark.parametrize(
    "patched", [(Engine, "settle", crash), (Heart, "take_up", crash)], ids=["a verb", "a heart"]
)
def test_a_variant_that_only_crashes_is_not_found(patched: Patch) -> None:
    """Nor by what the crash leads to. Each world ends soon, though all begin again and again."""
    rules = frozenset({*RULES, STUCK})
    broken = replace(BY_NAME["nobody is reaped"], patches=[patched], shown_by=rules)
    assert find(broken, range(4)) is None
    violations = simulate(draw(1), ablation=broken).violations
    assert {violation.rule for violation in violations} & {*RULES, STUCK, CRASHED} > {CRASHED}


def test_another_rule_than_its_own_does_not_find_it() -> None:
    ablation = BY_NAME["delays are cut short"]
    assert find(ablation, [0]) is not None
    assert find(replace(ablation, shown_by=frozenset({"lost"})), [0]) is None


def test_a_failure_is_shortened() -> None:
    ablation = BY_NAME["delays are cut short"]
    result = find(ablation, [ablation.hint]) or find(ablation, range(FOUND_WITHIN))
    assert result is not None

    def fails(plan: Plan) -> bool:
        return bool(simulate(plan, ablation.world, ablation).violations)

    small = shrink(result.plan, fails, most=25)
    assert fails(small)
    assert (len(small.faults), len(small.jobs)) <= (0, 2), "it needs one request and no fault"
    assert sum(small.layout) < sum(result.plan.layout)


# --- the command -------------------------------------------------------------------------------


def test_the_command_keeps_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.simulation.__main__._SKEWED", 1)
    figures = tmp_path / "figures.json"
    assert main(["--seeds", "12", "--json", str(figures)]) == 0
    assert "12 of 12 seeds" in capsys.readouterr().out
    kept = {(figure.fault, figure.what): figure.value for figure in load(figures)}
    assert kept["SIM", "seeds"] == 12
    assert kept["SIM", "worlds with a broken promise"] == 0
    assert kept["F27", "traces that differ by it"] == 0
    assert json.loads(figures.read_text())


def test_the_command_keeps_small_worlds_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "figures.json"
    assert main(["--seeds", "40", "--small", "--json", str(figures)]) == 0
    kept = {figure.what: figure.value for figure in load(figures)}
    assert kept.keys() == {
        "small worlds",
        "small worlds a minute",
        "small worlds with a broken promise",
    }
    assert kept["small worlds"] == 40


def test_a_small_world_that_fails_is_named_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--ablation", "unfenced settle", "--small", "--seeds", "200"]) == 0
    assert "--small\n" in capsys.readouterr().out


def _figures_of(summary: Summary, asked: int) -> dict[tuple[str, str], float | str]:
    """Those that are kept, up to the first that is broken."""
    evidence, progress = Evidence(), _Progress(asked)
    with contextlib.suppress(AssertionError):
        _keep(summary, asked, progress, evidence)
    return {(figure.fault, figure.what): figure.value for figure in evidence.figures}


def test_what_is_kept_of_zombies_is_counted_by_their_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A promise that is broken otherwise is none of theirs."""
    monkeypatch.setattr("tests.simulation.__main__._SKEWED", 1)
    effect, worlds = ("F24", "settlements of zombies that had an effect"), "worlds with a broken"
    summary = run_seeds(range(12))
    summary.failures, summary.violations["early"] = [(3, "queue")], 1
    kept = _figures_of(summary, 12)
    assert (kept[effect], kept["SIM", f"{worlds} promise"]) == (0, 1)
    summary.violations[_BY_A_ZOMBIE] = 2
    assert _figures_of(summary, 12)[effect] == 2


def test_violations_are_counted_by_the_rule_that_was_broken() -> None:
    ablation = BY_NAME["unfenced settle"]
    with ablation.applied():
        summary = run_seeds(range(12, 16))
    assert len(summary.failures) == 2
    assert summary.violations[_BY_A_ZOMBIE] > summary.violations["two holders"] == 0
    assert run_seeds(range(12, 16)).violations == Counter()


def test_fewer_seeds_than_were_asked_for_are_not_enough() -> None:
    assert ("SIM", "operations") not in _figures_of(run_seeds(range(2)), 3)


def test_the_broken_are_named_as_soon_as_they_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    progress, summary = _Progress(2_000), Summary(seeds=20)
    progress.tell(summary)
    assert capsys.readouterr().err == ""
    summary.failures += [(812, "queue"), (1711, "fetch")]
    progress.tell(summary)
    assert "2 broken: 812, 1711 fetch \n" in capsys.readouterr().err
    progress.tell(summary)
    assert capsys.readouterr().err == "", "nothing is new"
    summary.failures += [(n, "queue") for n in range(4)]
    progress.tell(summary)
    assert "6 broken: 812, 1711 fetch, 0, 1, 2, … \n" in capsys.readouterr().err


def test_the_command_shows_what_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--ablation", "delays are cut short", "--seeds", "5"]) == 0
    told = capsys.readouterr().out
    assert "BROKEN  early" in told
    assert main(["--ablation", "delays are cut short", "--from", "0", "--seeds", "1"]) == 0
    assert main(["--seed", "0"]) == 0
    assert "every promise held" in capsys.readouterr().out


@pytest.mark.parametrize(
    "asked", [["--seeds", "0"], ["--ablation", "none of these"], ["--seed", "x"]]
)
def test_the_command_refuses_nonsense(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(asked)
    assert refused.value.code == 2


def test_processes_of_a_command_that_is_killed_end_with_it() -> None:
    script = (
        "from tests.simulation.running import run_many\n"
        "run_many(range(100_000), 2, lambda _: print('going on', flush=True))"
    )
    command, pipe = [sys.executable, "-c", script], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "going on\n"
        running.kill()
        # They have their output in common: it ends with the last of them.
        running.communicate(timeout=30.0)


# --- the loop ----------------------------------------------------------------------------------


def in_a_loop(work: Coroutine[Any, Any, Any], until: float = 10_000.0) -> Any:
    loop = VirtualLoop(random.Random(0), until)
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def test_an_hour_takes_no_time() -> None:
    async def sleep() -> float:
        await asyncio.sleep(3600.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60.0):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert 3660.0 <= in_a_loop(sleep()) < 3660.1
    assert time.monotonic() - began < 1.0


def test_callbacks_come_in_order_and_timers_of_one_instant_in_any() -> None:
    async def order() -> tuple[list[int], list[int]]:
        loop, soon, later = asyncio.get_running_loop(), list[int](), list[int]()
        for number in range(20):
            loop.call_soon(soon.append, number)
            loop.call_later(1.0, later.append, number)
        await asyncio.sleep(2.0)
        return soon, later

    soon, later = in_a_loop(order())
    assert soon == list(range(20))
    assert later != soon
    assert sorted(later) == soon


def test_who_can_never_go_on_is_noticed() -> None:
    waiting = asyncio.Event().wait()
    with pytest.raises(Stuck, match="nobody can go on"):
        in_a_loop(waiting)
    waiting.close()


def make_process() -> Process:
    loop = asyncio.get_running_loop()
    return Process(0, 0, 1, SkewedClock(loop, draw(0).skews[0]))


async def note_each_second(notes: list[str]) -> None:
    try:
        while True:
            await asyncio.sleep(1.0)
            notes.append("alive")
    finally:
        notes.append("cleaned up")


def throw_away(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coroutine: Any = task.get_coro()
        coroutine.close()


def test_the_dead_do_nothing_not_even_clean_up() -> None:
    async def kill() -> list[str]:
        process, notes = make_process(), list[str]()
        task = start_in(process, note_each_second(notes), "p")
        await asyncio.sleep(2.5)
        process.die()
        task.cancel()
        del task
        await asyncio.sleep(60.0)
        seen = list(notes)
        throw_away(process.remains)
        return seen

    assert in_a_loop(kill()) == ["alive", "alive"]


def test_who_was_stopped_goes_on_where_he_was() -> None:
    async def stop() -> tuple[int, int]:
        process, notes = make_process(), list[str]()
        task = start_in(process, note_each_second(notes), "p")
        await asyncio.sleep(2.5)
        process.paused = True
        await asyncio.sleep(60.0)
        stopped = len(notes)
        process.paused = False
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.go_on(process)
        await asyncio.sleep(1.5)
        task.cancel()
        await asyncio.wait([task])
        return stopped, len(notes)

    assert in_a_loop(stop()) == (2, 5)
