"""What a run showed: from its ledgers, and from what was kept beside them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.chaos.account import Account, Picture, close
from tests.chaos.auditor import read_picture
from tests.chaos.explaining import read_chronicle
from tests.chaos.growing import Size
from tests.chaos.history import Judgement, judge
from tests.chaos.ledger import Records, read_all
from tests.chaos.tiers import Tier

KEPT = "outcome.json"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What no ledger tells."""

    tier: Tier
    store: str
    seed: int
    # What was done, and what the plan had for that time.
    faults: Counter[str]
    planned: Counter[str]
    # The instant at which nothing was queued or leased any more.
    drained_at: float | None
    lost_replies: int
    torn_steps: int
    crashes: tuple[str, ...]
    seconds: float
    late_replies: int = 0
    # Kinds of faults that this machine does not let anybody do.
    untried: tuple[str, ...] = ()
    # How large processes were, now and then.
    sizes: tuple[Size, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outcome(Kept):
    account: Account
    history: Judgement
    records: Records
    picture: Picture
    said: str

    def problems(self) -> list[str]:
        """Everything that may not be, in words."""
        return [*self.account.problems(), *self.history.told, *self.crashes]


def keep(kept: Kept, folder: Path) -> None:
    told = {**vars(kept), "tier": asdict(kept.tier)}
    (folder / KEPT).write_text(json.dumps(told, indent=1))


def read_kept(folder: Path) -> Kept:
    told = json.loads((folder / KEPT).read_text())
    read = {
        "tier": Tier(**told["tier"]),
        "faults": Counter(told["faults"]),
        "planned": Counter(told["planned"]),
        "crashes": tuple(told["crashes"]),
        "untried": tuple(told.get("untried", ())),
        "sizes": tuple(Size(*size) for size in told.get("sizes", ())),
    }
    return Kept(**{**told, **read})


def read_outcome(folder: Path) -> Outcome:
    """Close the account of a run that is over; nothing is run for it."""
    kept, records = read_kept(folder), read_all(folder)
    picture = read_picture(folder / "picture.json")
    chronicle = read_chronicle(records, kept.tier.lease_ttl)
    return Outcome(
        **vars(kept),
        account=close(records, picture, chronicle, max_deaths=kept.tier.max_deaths),
        history=judge(records, picture, chronicle),
        records=records,
        picture=picture,
        said=read_said(folder),
    )


def read_said(folder: Path) -> str:
    output = folder / "output"
    return output.read_text(errors="replace") if output.exists() else ""
