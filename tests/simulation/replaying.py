"""One seed again: shortened if it fails, and told."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from tests.simulation.ablations import Ablation
from tests.simulation.plan import SMALL, WHOLE, Plan, Size, draw
from tests.simulation.running import simulate
from tests.simulation.showing import report
from tests.simulation.shrinking import shrink
from tests.simulation.world import Result


def replay(plan: Plan, world: str, ablation: Ablation | None = None) -> tuple[bool, str]:
    """Whether every promise held, and what a person is told of it."""
    result = simulate(plan, world, ablation)
    if result.violations:
        return False, "\n".join(_failure(result, world, ablation))
    trace = result.trace[:12]
    return True, f"{result.plan} ({world} world, trace {trace}): every promise held"


def first_of(failures: Sequence[tuple[int, str]], size: Size = WHOLE) -> str:
    """What is told of the first; the others are named."""
    (seed, world), *others = failures
    _, told = replay(draw(seed, size), world)
    return f"{told}\nand {len(others)} others: {others}" if others else told


def _failure(result: Result, world: str, ablation: Ablation | None) -> Iterator[str]:
    again = _command(result.plan, world, ablation)
    yield f"seed {result.plan.seed} broke a promise; again: {again}"
    yield from report(_shortened(result, world, ablation), world)


def _command(plan: Plan, world: str, ablation: Ablation | None) -> str:
    small = ["--small"] if len(plan.jobs) == SMALL.requests else []
    which = ["--seed", str(plan.seed), "--world", world]
    if ablation is not None:
        which = ["--ablation", ablation.name, "--from", str(plan.seed), "--seeds", "1"]
    return shlex.join(["python", "-m", "tests.simulation", *which, *small])


def _shortened(result: Result, world: str, ablation: Ablation | None) -> Result:
    rules = {violation.rule for violation in result.violations}

    def fails(plan: Plan) -> bool:
        found = simulate(plan, world, ablation).violations
        return any(violation.rule in rules for violation in found)

    return simulate(shrink(result.plan, fails), world, ablation)
