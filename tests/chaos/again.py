"""The account of a run that was kept, closed once more."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.figures import Figures
from tests.chaos.outcome import KEPT, read_outcome
from tests.chaos.poison import WITH, read_poison, show_poison
from tests.chaos.scale import read_scale, show_scale
from tests.chaos.telling import Teller, tell


def kept_in(folder: Path) -> list[Path]:
    """The runs that came to their end in it: its own, or one for each store."""
    places = (folder, folder / "redis", folder / "sqlite")
    return [one for one in places if (one / KEPT).exists() or (one / WITH / KEPT).exists()]


def close_again(folder: Path, teller: Teller) -> None:
    if not (folder / KEPT).exists():
        outcome, share = read_poison(folder)
        tell(outcome, lambda: show_poison(outcome, share, teller.show), teller)
        return
    outcome = read_outcome(folder)
    if outcome.tier.name == "scale":
        scale = read_scale(folder)
        tell(outcome, lambda: show_scale(outcome, scale, teller.show), teller)
    else:
        tell(outcome, Figures(outcome, teller.show).all, teller)
