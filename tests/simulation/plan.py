"""What will happen in a world, drawn from its seed before it begins.

A plan is plain data: it can be printed, and made smaller while it still shows what it showed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

# For so long things go wrong; then everybody may finish in peace.
TROUBLE = 6.0
LEASE_TTL = 3.0
# Who is silent for longer may be taken for dead: a clock may be one in a hundred fast.
SILENCE = 0.95 * LEASE_TTL
_DYADIC_HOURS = (-3600.0, -1800.0, 0.0, 0.25, 1800.0, 3600.0)

Kind = Literal[
    "lost request",
    "lost reply",
    "no answer",
    "late request",
    "late reply",
    "aborted step",
    "partition",
    "store restart",
    "crash",
    "pause",
    "cancelled operation",
    "cancelled worker",
    "graceful restart",
]
# How often each is drawn, out of all.
_WEIGHTS: dict[Kind, int] = {
    "lost request": 8,
    "lost reply": 14,
    "no answer": 6,
    "late request": 8,
    "late reply": 6,
    "aborted step": 6,
    "partition": 5,
    "store restart": 3,
    "crash": 8,
    "pause": 7,
    "cancelled operation": 20,
    "cancelled worker": 6,
    "graceful restart": 3,
}
KINDS = tuple(_WEIGHTS)


class Size(NamedTuple):
    """How much there is in a world: ``layouts`` are workers by process, one of which is drawn."""

    layouts: tuple[tuple[int, ...], ...]
    requests: int
    fewest_faults: int
    most_faults: int


WHOLE = Size(((8,), (4, 4), (2, 2, 2, 2), (3, 3, 1, 1), (5, 2, 1)), 40, 5, 25)
# Most of what can go wrong takes two or three to show itself; and there is time for more of these.
SMALL = Size(((2,), (1, 1), (2, 1), (1, 1, 1)), 8, 3, 12)


@dataclass(frozen=True, slots=True)
class Fault:
    """From ``at`` on. ``count`` is how many messages, or after how many turns of the loop."""

    kind: Kind
    at: float
    who: int
    duration: float = 0.0
    count: int = 1

    def __str__(self) -> str:
        return f"{self.at:9.3f} s  {self.kind:<20} p{self.who}  {self.duration:.3f} s x{self.count}"


@dataclass(frozen=True, slots=True)
class Skew:
    """How wrong a process's clocks are: an hour or more off, and a little fast or slow."""

    wall: float = 0.0
    monotonic: float = 0.0
    rate: float = 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """One request and what its handler does."""

    name: str
    does: str = "complete"
    lane: str = ""
    priority: int = 3
    delay: float = 0.0
    key: str = ""
    takes: float = 0.01
    children: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    layout: tuple[int, ...]
    jobs: tuple[Job, ...]
    faults: tuple[Fault, ...]
    skews: tuple[Skew, ...]
    capacity: int = 0
    lane_concurrency: int = 0

    def __str__(self) -> str:
        workers = f"{sum(self.layout)} workers in {len(self.layout)} processes"
        return f"seed {self.seed}: {workers}, {len(self.jobs)} requests, {len(self.faults)} faults"


def draw(seed: int, size: Size = WHOLE) -> Plan:
    """The plan of a seed."""
    rng = random.Random(f"plan {seed}")
    layout = rng.choice(size.layouts)
    return Plan(
        seed,
        layout,
        tuple(_draw_job(rng, number) for number in range(size.requests)),
        tuple(_draw_fault(rng, len(layout)) for _ in range(_draw_number(rng, size))),
        tuple(_draw_skew(rng) for _ in layout),
        capacity=rng.choice((0, 0, 0, 12)),
        lane_concurrency=rng.choice((0, 0, 0, 2)),
    )


def _draw_number(rng: random.Random, size: Size) -> int:
    return rng.randint(size.fewest_faults, size.most_faults)


# What handlers do, and how often.
_DEEDS = {
    "complete": 30,
    "as a context": 12,
    "bring children": 22,
    "fail once": 10,
    "fail always": 5,
    "release": 6,
    "bury": 3,
    "give back": 4,
    "progress": 5,
    "drop": 2,
    "outlast the lease": 2,
    "kill the process": 1,
    "let go of the lease": 3,
}


def _draw_job(rng: random.Random, number: int) -> Job:
    (does,) = rng.choices(list(_DEEDS), list(_DEEDS.values()))
    slow = does == "outlast the lease"
    return Job(
        f"r{number}",
        does,
        lane=rng.choice(("", "a", "a", "b", "c")),
        priority=rng.choice((1, 3, 3, 3, 5, 6)),
        delay=rng.choice((0.0, 0.0, 0.0, rng.uniform(0.05, 4.0))),
        # Some keys are brought by two requests.
        key=rng.choice(("", "", f"k{number}", f"k{number}", f"k{number // 2}+")),
        takes=LEASE_TTL * 1.5 if slow else rng.choice((0.0, 0.005, 0.05, rng.uniform(0.05, 1.0))),
        children=rng.randint(1, 3),
    )


def _draw_fault(rng: random.Random, processes: int) -> Fault:
    (kind,) = rng.choices(KINDS, list(_WEIGHTS.values()))
    longest = {
        "partition": 2.5 * LEASE_TTL,
        "pause": 2.5 * LEASE_TTL,
        "store restart": LEASE_TTL,
        "crash": 3.0,
        "graceful restart": 0.5,
        "cancelled operation": 0.02,
        "late request": 4.0,
        "late reply": 4.0,
    }.get(kind, 0.0)
    return Fault(
        kind,
        at=rng.uniform(0.0, TROUBLE) ** 2 / TROUBLE,
        who=rng.randrange(processes),
        duration=longest * rng.random() ** 2 if longest < 1 else rng.uniform(0.05, longest),
        count=rng.randint(0, 12) if kind == "cancelled operation" else rng.randint(1, 3),
    )


def _draw_skew(rng: random.Random) -> Skew:
    return Skew(
        wall=rng.choice(_DYADIC_HOURS),
        monotonic=rng.choice(_DYADIC_HOURS),
        rate=rng.choice((1.0, 1.0, 0.99, 1.01)),
    )


def straight(plan: Plan) -> Plan:
    """The same with clocks that are right."""
    return replace(plan, skews=tuple(Skew() for _ in plan.skews))


def skewed(plan: Plan, hours: float = 1.0) -> Plan:
    """The same with clocks that are wrong by hours, each another way, and run at the right rate."""
    offsets = [
        3600.0 * hours * (1 - 2 * (at % 2)) * (1 + at // 2) for at, _ in enumerate(plan.skews)
    ]
    return replace(plan, skews=tuple(Skew(wall=o, monotonic=-o) for o in offsets))
