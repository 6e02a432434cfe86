"""What poison costs those who are handled beside it: one load, without it and with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from tests.chaos.conducting import conduct
from tests.chaos.figures import Figures
from tests.chaos.names import is_poison
from tests.chaos.outcome import Outcome, read_outcome
from tests.chaos.tiers import Tier

WITHOUT, WITH = "without", "with"


async def conduct_poison(tier: Tier, kind: str, seed: int, folder: Path) -> tuple[Outcome, float]:
    """The poisoned run, and the throughput of the others in it as a share of what it was."""
    outcomes: list[Outcome] = []
    for name, every in ((WITHOUT, 0), (WITH, tier.poison_every)):
        (folder / name).mkdir()
        mixed = dataclasses.replace(tier, poison_every=every)
        outcomes.append(await conduct(mixed, kind, seed, folder / name))
    return _compare(*outcomes)


def read_poison(folder: Path) -> tuple[Outcome, float]:
    return _compare(read_outcome(folder / WITHOUT), read_outcome(folder / WITH))


def _compare(before: Outcome, after: Outcome) -> tuple[Outcome, float]:
    """What it is measured by must have held itself."""
    if problems := before.problems():
        raise RuntimeError(f"without any poison: {problems}")
    return after, rate_of_others(after) / rate_of_others(before)


def rate_of_others(outcome: Outcome) -> float:
    """How many that are no poison were completed a second, until nine of ten were.

    The last ones are those that died with it, and must be waited for one by one.
    """
    calls = [call for call in outcome.records.calls if not any(map(is_poison, call.names))]
    done = sorted(
        call.end
        for call in calls
        if call.op == "complete" and call.outcome == "ok" and call.end is not None
    )
    begun = min(call.start for call in calls if call.op == "lease" and call.names)
    most = len(done) * 9 // 10
    return most / (done[most] - begun)


def show_poison(outcome: Outcome, share: float, show: Callable[..., None]) -> None:
    figures = Figures(outcome, show)
    figures.histories("F32")
    figures.poison()
    what = f"throughput of the others ({outcome.store})"
    show("F32", what, round(100 * share), at_least=80, unit="%")
