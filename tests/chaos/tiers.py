"""How much is asked of a run, and what is done to it meanwhile."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Tier:
    """Durations are seconds; what is ``every`` so often with 0 never happens."""

    name: str
    requests: int
    processes: int
    workers: int
    producers: int
    seconds: float
    lease_ttl: float
    shortest_work: float
    longest_work: float
    cancels: float = 0.0
    poison_every: int = 0
    loss: float = 0.05
    batch: int = 10
    kill_every: float = 2.0
    stop_every: float = 0.0
    server_every: float = 0.0
    longest_outage: float = 1.0
    all_every: float = 0.0
    fill_every: float = 0.0
    fill_for: float = 1.5
    flap_for: float = 0.0
    slow_for: float = 0.0
    # So many processes are as if on hosts of their own: only their silence tells that they died.
    # Where processes live for less than a lease lasts, there is nobody to notice a silence.
    strangers: int = 0
    max_deaths: int = 5
    # For this share of the time requests are brought. What is left of it shows that all come to an
    # end; a long run is under load until its last fault.
    loaded: float = 1.0
    # So many worker processes are left alone, to see whether who lives long grows.
    spared: int = 0
    # What bounds in time are multiplied by: a short run has few chances on a busy machine.
    slack: float = 1.0
    # How much of the tier this is; what must be done to it is as much less.
    share: float = 1.0

    @property
    def options(self) -> dict[str, Any]:
        return {"lease_ttl": self.lease_ttl, "max_deaths": self.max_deaths}

    @property
    def loaded_until(self) -> float:
        return self.loaded * self.seconds

    @property
    def rate(self) -> float:
        return self.requests / self.loaded_until

    def of(self, requests: int) -> Tier:
        """The same with another number of requests."""
        return dataclasses.replace(self, requests=requests)

    def lasting(self, minutes: float) -> Tier:
        """The same pressure for another time."""
        factor = minutes * 60 / self.seconds
        return dataclasses.replace(
            self,
            seconds=self.seconds * factor,
            requests=max(1, round(self.requests * factor)),
            flap_for=self.flap_for * factor,
            slow_for=self.slow_for * factor,
            share=self.share * factor,
        )


SHORT = Tier(
    "short",
    requests=5_000,
    processes=4,
    workers=25,
    producers=2,
    seconds=30.0,
    lease_ttl=3.0,
    shortest_work=0.02,
    longest_work=0.4,
    cancels=0.15,
    poison_every=2_000,
    kill_every=2.5,
    stop_every=9.0,
    server_every=8.0,
    longest_outage=1.0,
    all_every=17.0,
    fill_every=11.0,
    flap_for=3.0,
    slow_for=3.0,
    strangers=2,
    loaded=0.8,
    slack=3.0,
)
LONG = Tier(
    "long",
    requests=200_000,
    processes=20,
    workers=10,
    producers=5,
    seconds=1_800.0,
    lease_ttl=10.0,
    shortest_work=0.005,
    longest_work=0.05,
    cancels=0.01,
    poison_every=100,
    kill_every=2.0,
    stop_every=20.0,
    server_every=15.0,
    longest_outage=5.0,
    all_every=60.0,
    fill_every=120.0,
    flap_for=300.0,
    slow_for=60.0,
)

SOAK = Tier(
    "soak",
    requests=150_000,
    processes=6,
    workers=10,
    producers=2,
    seconds=3_600.0,
    lease_ttl=10.0,
    shortest_work=0.01,
    longest_work=0.2,
    cancels=0.01,
    kill_every=10.0,
    stop_every=45.0,
    server_every=60.0,
    longest_outage=3.0,
    fill_every=180.0,
    flap_for=60.0,
    slow_for=60.0,
    spared=2,
)

SCALE = Tier(
    "scale",
    requests=1_000_000,
    processes=20,
    workers=10,
    producers=0,
    seconds=3_600.0,
    lease_ttl=10.0,
    # So long that the processes do not starve each other of two processors.
    shortest_work=0.05,
    longest_work=0.25,
    loss=0.0,
    batch=1_000,
    kill_every=1.0,
    strangers=10,
)

POISON = Tier(
    "poison",
    requests=12_000,
    processes=4,
    workers=25,
    producers=1,
    seconds=4.0,
    lease_ttl=3.0,
    shortest_work=0.1,
    longest_work=0.3,
    loss=0.0,
    batch=200,
    kill_every=0.0,
    poison_every=2_400,
    loaded=0.8,
)


class Step(NamedTuple):
    """A fault to come, so many seconds after the start."""

    at: float
    kind: str


def plan(tier: Tier, seed: int, *, has_server: bool) -> dict[str, list[Step]]:
    """What is done when: to workers and to the store, each one thing after another."""
    dice = random.Random(seed)
    workers = [*_every(tier.kill_every, "kill", tier, dice)]
    workers += _every(tier.stop_every, "stop", tier, dice)
    store = [*_every(tier.all_every, "kill all", tier, dice)]
    store += _every(tier.fill_every, "fill", tier, dice)
    if has_server:
        store += _every(tier.server_every, "kill server", tier, dice)
        store += _once(tier.slow_for, "slow", 0.3, tier)
        store += _once(tier.flap_for, "flap", 0.55, tier)
    # Among what is done to the store, so that nothing is done to it meanwhile.
    if store:
        store += _once(tier.stop_every, "stop in calm", 0.45, tier)
        store += _once(tier.kill_every, "kill in calm", 0.46, tier)
    return {"workers": sorted(workers), "store": sorted(store)}


def _once(wanted: float, kind: str, at: float, tier: Tier) -> list[Step]:
    """After this share of the time."""
    return [Step(at * tier.seconds, kind)] if wanted else []


def _every(pause: float, kind: str, tier: Tier, dice: random.Random) -> list[Step]:
    """From half a pause after the start on, not quite regularly."""
    if not pause:
        return []
    count = int(tier.seconds / pause + 0.5)
    return [Step((n + dice.uniform(0.4, 0.6)) * pause, kind) for n in range(count)]
