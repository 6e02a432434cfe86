"""The proofs that have a command of their own, and from which tier on they are run."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass

from tests.reliability.faults import CATALOGUE

TIERS = ("quick", "full", "long")
TESTS = "tests"


@dataclass(frozen=True)
class Command:
    """Writes its figures to the file that is given after ``--json``."""

    name: str
    tier: str
    patience: float
    module: str
    arguments: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return " ".join(("python -m", self.module, *self.arguments))

    @property
    def exists(self) -> bool:
        return importlib.util.find_spec(self.module) is not None


_MINUTES = 60.0
COMMANDS = {
    command.name: command
    for command in (
        Command(
            "chaos short",
            "quick",
            10 * _MINUTES,
            "tests.chaos",
            ("--tier", "short", "--store", "both"),
        ),
        Command(
            "simulation",
            "full",
            60 * _MINUTES,
            "tests.simulation",
            ("--seeds", "10000"),
        ),
        Command(
            "simulation small",
            "full",
            60 * _MINUTES,
            "tests.simulation",
            ("--seeds", "10000", "--small"),
        ),
        Command(
            "chaos poison",
            "full",
            10 * _MINUTES,
            "tests.chaos",
            ("--tier", "poison", "--store", "both"),
        ),
        Command("crowds", "long", 30 * _MINUTES, "tests.crowds", ("--store", "redis")),
        Command("crowds on SQLite", "long", 40 * _MINUTES, "tests.crowds", ("--store", "sqlite")),
        Command("fuzz", "full", 30 * _MINUTES, "tests.fuzz", ("--minutes", "10")),
        Command("power", "full", 60 * _MINUTES, "tests.power", ("--cuts", "10000")),
        Command(
            "chaos long",
            "long",
            60 * _MINUTES,
            "tests.chaos",
            ("--tier", "long", "--store", "redis"),
        ),
        Command(
            "chaos long on SQLite",
            "long",
            60 * _MINUTES,
            "tests.chaos",
            ("--tier", "long", "--store", "sqlite"),
        ),
        Command(
            "chaos scale",
            "long",
            60 * _MINUTES,
            "tests.chaos",
            ("--tier", "scale", "--store", "redis"),
        ),
        Command(
            "chaos scale on SQLite",
            "long",
            60 * _MINUTES,
            "tests.chaos",
            ("--tier", "scale", "--store", "sqlite"),
        ),
        Command(
            "soak",
            "long",
            90 * _MINUTES,
            "tests.chaos",
            ("--tier", "soak", "--store", "redis"),
        ),
        Command(
            "soak on SQLite",
            "long",
            90 * _MINUTES,
            "tests.chaos",
            ("--tier", "soak", "--store", "sqlite"),
        ),
        Command(
            "WAL race",
            "long",
            30 * _MINUTES,
            "tests.power",
            ("--wal-race", "--minutes", "10"),
        ),
        Command("mutations", "long", 90 * _MINUTES, "tests.mutations"),
    )
}


def chosen(tier: str, rows: Iterable[str]) -> list[Command]:
    """Those of the tier and of the ones before it that show any of these rows."""
    within = TIERS[: TIERS.index(tier) + 1]
    named = {name for row in rows for name in CATALOGUE[row].by}
    return [one for one in COMMANDS.values() if one.tier in within and one.name in named]
