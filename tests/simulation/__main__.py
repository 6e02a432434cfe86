"""Simulate many worlds, each decided by one integer, and hold every promise in each.

    python -m tests.simulation                       200 seeds
    python -m tests.simulation --seeds 10000 --json figures.json
    python -m tests.simulation --seeds 10000 --small thousands a minute
    python -m tests.simulation --seed 4711           one seed again, with its history if it fails
    python -m tests.simulation --ablation all        does it find what is broken on purpose?

A seed is a world of 8 workers and 40 requests, or with --small of 2 or 3 workers and 8 requests;
every fourth is also one in which the fetcher works on a run. Exit codes: 0 every promise held (or
every ablation was found), 1 one was broken (or not found), 2 bad usage.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.evidence import Evidence
from tests.simulation.ablations import ALL, BY_NAME, Ablation
from tests.simulation.plan import KINDS, SMALL, WHOLE, Plan, Size, draw
from tests.simulation.replaying import replay
from tests.simulation.running import Summary, find, run_many, skew_clocks

FOUND_WITHIN = 2_000
_SKEWED = 50
_TELL_EVERY = 10.0
_MOST_SHOWN = 3
_MOST_NAMED = 5
# As the rule is called in tests/histories.py.
_BY_A_ZOMBIE = "settled by a zombie"


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _read(arguments)
    evidence = Evidence()
    try:
        if asked.ablation:
            held = _search(asked, evidence)
        elif asked.seed is not None:
            held = _replay(draw(asked.seed, _size(asked)), asked.world)
        else:
            held = _simulate(asked, evidence)
    except AssertionError as broken:
        print(broken)
        held = False
    if asked.json is not None:
        evidence.save(asked.json)
    return 0 if held else 1


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("tests.simulation", description=__doc__, formatter_class=kind)
    parser.add_argument("--seeds", type=_positive, help="how many (200; for ablations 2000)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one; if it fails, shortened")
    parser.add_argument("--world", choices=("queue", "fetch"), default="queue", help="of --seed")
    jobs = os.cpu_count() or 1
    parser.add_argument("--jobs", type=_positive, default=jobs, help=f"processes to use ({jobs})")
    parser.add_argument(
        "--ablation", metavar="NAME", choices=("all", *BY_NAME), help="'all', or one of --list"
    )
    parser.add_argument("--small", action="store_true", help="worlds of 2 or 3 workers")
    parser.add_argument("--list", action="store_true", help="name what can be broken")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    asked = parser.parse_args(arguments)
    if asked.list:
        print(*(f"{ablation.name} ({ablation.world})" for ablation in ALL), sep="\n")
        parser.exit()
    return asked


def _size(asked: argparse.Namespace) -> Size:
    return SMALL if asked.small else WHOLE


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


# --- many seeds --------------------------------------------------------------------------------


def _simulate(asked: argparse.Namespace, evidence: Evidence) -> bool:
    seeds = range(asked.first, asked.first + (asked.seeds or 200))
    print(f"seeds {seeds[0]} to {seeds[-1]}, {asked.jobs} at a time")
    progress = _Progress(len(seeds))
    summary = run_many(seeds, asked.jobs, progress.tell, _size(asked))
    progress.end(summary)
    for seed, world in summary.failures[:_MOST_SHOWN]:
        _replay(draw(seed, _size(asked)), world)
    if asked.json is not None:
        keep = _keep_small if asked.small else _keep
        keep(summary, len(seeds), progress, evidence)
    return not summary.failures


def _keep(summary: Summary, asked: int, progress: _Progress, evidence: Evidence) -> None:
    """What is broken comes last: nothing is kept after it."""
    figures = summary.figures
    evidence("SIM", "seeds", summary.seeds, at_least=asked)
    evidence("SIM", "runs of the fetcher", summary.worlds["fetch"], at_least=1)
    evidence("SIM", "operations", figures["operations"], at_least=1)
    evidence("SIM", "deliveries", figures["deliveries"], at_least=1)
    for kind in (*KINDS, "death"):
        evidence("SIM", f"injected: {kind}", figures[kind], at_least=1)
    evidence("SIM", "seeds a minute", round(progress.pace(summary)), told=True)
    cut_short = figures["operations cut short"]
    evidence("F11", "operations cancelled at any await", cut_short, at_least=1)
    _keep_promises(summary, evidence)


def _keep_small(summary: Summary, asked: int, progress: _Progress, evidence: Evidence) -> None:
    """Under names of their own: the others are held to the number of whole worlds."""
    evidence("SIM", "small worlds", summary.seeds, at_least=asked)
    evidence("SIM", "small worlds a minute", round(progress.pace(summary)), told=True)
    evidence("SIM", "small worlds with a broken promise", len(summary.failures), exactly=0)


def _keep_promises(summary: Summary, evidence: Evidence) -> None:
    evidence("F24", "processes stopped and woken again", summary.figures["pause"], at_least=1)
    by_zombies = summary.violations[_BY_A_ZOMBIE]
    evidence("F24", "settlements of zombies that had an effect", by_zombies, exactly=0)
    worlds, differing = skew_clocks(range(_SKEWED))
    evidence("F27", "worlds with clocks an hour wrong, each way", worlds, at_least=2 * _SKEWED)
    evidence("F27", "traces that differ by it", len(differing), exactly=0)
    evidence("SIM", "worlds with a broken promise", len(summary.failures), exactly=0)


class _Progress:
    """A line that is rewritten on a terminal; elsewhere one every ten seconds, and at once for
    each of the first few that are broken."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._named = 0
        self._began = self._told = time.monotonic()

    def tell(self, summary: Summary) -> None:
        if sys.stderr.isatty():
            print(f"\r{self._line(summary)}", end="", file=sys.stderr, flush=True)
        elif self._has_news(summary):
            print(self._line(summary), file=sys.stderr, flush=True)

    def _has_news(self, summary: Summary) -> bool:
        now, named = time.monotonic(), len(summary.failures[:_MOST_NAMED])
        if named == self._named and now - self._told < _TELL_EVERY:
            return False
        self._named, self._told = named, now
        return True

    def end(self, summary: Summary) -> None:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        print(self._line(summary))
        for rule, count in summary.violations.most_common():
            print(f"  {count:>10,} BROKEN: {rule}")
        for what, count in sorted(summary.figures.items()):
            print(f"  {count:>10,} {what}")
        print(f"  trace of all: {summary.trace}")

    def pace(self, summary: Summary) -> float:
        return 60 * summary.seeds / max(time.monotonic() - self._began, 1e-9)

    def _line(self, summary: Summary) -> str:
        pace, broken = self.pace(summary), _named(summary.failures)
        return f"{summary.seeds:,} of {self._seeds:,} seeds, {pace:,.0f} a minute, {broken} "


def _named(failures: Sequence[tuple[int, str]]) -> str:
    """How many, and the first few as ``--seed`` and ``--world`` want them: 812, 1711 fetch, …"""
    names = [f"{seed} {world}".removesuffix(" queue") for seed, world in failures[:_MOST_NAMED]]
    more = ["…"] * (len(failures) > _MOST_NAMED)
    return f"{len(failures)} broken" + (f": {', '.join(names + more)}" if names else "")


# --- one seed ----------------------------------------------------------------------------------


def _replay(plan: Plan, world: str, ablation: Ablation | None = None) -> bool:
    held, told = replay(plan, world, ablation)
    print(told)
    return held


# --- what is broken on purpose -----------------------------------------------------------------


def _search(asked: argparse.Namespace, evidence: Evidence) -> bool:
    chosen = ALL if asked.ablation == "all" else [BY_NAME[asked.ablation]]
    seeds = range(asked.first, asked.first + (asked.seeds or FOUND_WITHIN))
    size = _size(asked)
    missed = [ablation.name for ablation in chosen if not _finds(ablation, seeds, size)]
    if len(chosen) == 1 and not missed:
        result = find(chosen[0], seeds, size)
        if result is not None:
            _replay(result.plan, chosen[0].world, chosen[0])
    evidence("SIM", "broken variants looked for", len(chosen), at_least=1)
    evidence("SIM", f"not found within {len(seeds)} seeds", len(missed), exactly=0)
    return not missed


def _finds(ablation: Ablation, seeds: range, size: Size) -> bool:
    result = find(ablation, seeds, size)
    if result is None:
        print(f"{ablation.name:<34} NOT FOUND", flush=True)
        return False
    rules = ", ".join(sorted({violation.rule for violation in result.violations}))
    print(f"{ablation.name:<34} seed {result.plan.seed:>4}  {rules}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
