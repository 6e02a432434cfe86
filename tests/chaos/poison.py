"""What poison costs those who are handled beside it: one load, without it and with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from tests.chaos.conducting import Outcome, conduct
from tests.chaos.figures import Figures
from tests.chaos.names import is_poison
from tests.chaos.tiers import Tier


async def conduct_poison(tier: Tier, kind: str, seed: int, folder: Path) -> tuple[Outcome, float]:
    """The poisoned run, and the throughput of the others in it as a share of what it was."""
    rates: list[float] = []
    for name, every in (("without", 0), ("with", tier.poison_every)):
        (folder / name).mkdir()
        mixed = dataclasses.replace(tier, poison_every=every)
        outcome = await conduct(mixed, kind, seed, folder / name)
        rates.append(rate_of_others(outcome))
    return outcome, rates[1] / rates[0]


def rate_of_others(outcome: Outcome) -> float:
    """How many that are no poison were completed a second, until nine of ten were.

    The last ones are those that died with it, and must be waited for one by one.
    """
    calls = [call for call in outcome.records.calls if not any(map(is_poison, call.names))]
    done = sorted(call.end for call in calls if call.op == "complete" and call.end is not None)
    begun = min(call.start for call in calls if call.op == "lease" and call.names)
    most = len(done) * 9 // 10
    return most / (done[most] - begun)


def show_poison(outcome: Outcome, share: float, show: Callable[..., None]) -> None:
    Figures(outcome, show).poison()
    what = f"throughput of the others ({outcome.store})"
    show("F32", what, round(100 * share), at_least=80, unit="%")
