"""Where runs stand, told: for a person, and for a script. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from data_fetcher_core.cli.dead_report import DeadReport
from data_fetcher_core.cli.places import Place, command_line
from data_fetcher_core.cli.settings import shown
from data_fetcher_core.cli.standing import RunStanding
from data_fetcher_core.cli.table import facts, table
from data_fetcher_core.cli.view.figures import count, duration, rate
from data_fetcher_core.cli.view.showable import showable

_SECRET = frozenset({"headers", "proxy"})


@dataclass(frozen=True, slots=True)
class Look:
    """Two looks at a run, so many seconds apart, and a few of its dead letters."""

    before: RunStanding
    now: RunStanding
    seconds: float
    dead: Sequence[DeadReport] = ()

    @property
    def rate(self) -> float:
        """Pages a second."""
        return max(0.0, (self.now.stats.completed - self.before.stats.completed) / self.seconds)

    @property
    def seconds_left(self) -> float | None:
        """If nothing new is found; ``None`` if nothing moves."""
        return self.now.left / self.rate if self.rate and self.now.left else None


def status_json(look: Look, place: Place) -> dict[str, Any]:
    now = look.now
    return {
        **run_json(now),
        "store": str(place),
        "out": None if now.settings is None else now.settings.identity["out"],
        "pages_per_second": round(look.rate, 2),
        "seconds_left": look.seconds_left,
        "workers": [asdict(worker) for worker in now.workers],
        "locators": [asdict(locator) for locator in now.locators],
        "settings": None if now.settings is None else _public_settings(now),
        "dead_letters": [letter.to_json() for letter in look.dead],
    }


def run_json(standing: RunStanding) -> dict[str, Any]:
    stats, entry = standing.stats, standing.entry
    return {
        "run_id": entry.run_id,
        "command": entry.command,
        "title": entry.title,
        "created_at": entry.created_at,
        "state": standing.state,
        "done": stats.completed,
        "ready": stats.ready,
        "delayed": stats.delayed,
        "in_flight": stats.leased,
        "dead": stats.dead,
        "retried": stats.retried,
    }


def status_lines(look: Look, place: Place) -> list[str]:
    now, stats, entry = look.now, look.now.stats, look.now.entry
    pairs = [
        ("run", f"{entry.run_id}, {now.state}"),
        ("begun by", showable(f"{entry.command} {entry.title}")),
        ("begun at", _instant(entry.created_at)),
        ("store", str(place)),
        ("pages", "-" if now.settings is None else now.settings.identity["out"]),
        ("done", count(stats.completed)),
        ("ready", count(stats.ready)),
        ("delayed", count(stats.delayed)),
        ("in flight", count(stats.leased)),
        ("dead", count(stats.dead)),
        ("locators", _locators(now)),
        ("worked on by", _workers(now)),
    ]
    return [*facts([*pairs, *_pace(look)]), *_dead(look), *_hints(look, place)]


def runs_lines(standings: Sequence[RunStanding]) -> list[str]:
    rows = [
        (
            standing.entry.run_id,
            standing.state,
            count(standing.stats.completed),
            count(standing.left),
            count(standing.stats.dead),
            _instant(standing.entry.created_at),
            showable(f"{standing.entry.command} {standing.entry.title}"),
        )
        for standing in standings
    ]
    return table(("RUN", "STATE", "DONE", "LEFT", "DEAD", "BEGUN AT", "BEGUN BY"), rows)


def _instant(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _pace(look: Look) -> list[tuple[str, str]]:
    if look.now.is_finished:
        return []
    left = "not known" if look.seconds_left is None else duration(look.seconds_left)
    return [
        ("pace", f"{rate(look.rate)} pages/s"),
        ("time left", f"{left}, if nothing new is found" if look.seconds_left else left),
    ]


def _locators(now: RunStanding) -> str:
    told = (
        f"{locator.name} ({'exhausted' if locator.exhausted else 'has more'})"
        for locator in now.locators
    )
    return ", ".join(told) or "-"


def _workers(now: RunStanding) -> str:
    return ", ".join(f"process {one.pid} on {one.host}" for one in now.workers) or "nobody"


def _dead(look: Look) -> list[str]:
    if not look.dead:
        return []
    return ["dead letters, the oldest first:", *(f"  {letter.line()}" for letter in look.dead)]


def _hints(look: Look, place: Place) -> list[str]:
    run_id, hints = look.now.entry.run_id, []
    if look.now.stats.dead:
        again = command_line(place, "dead", "requeue", run_id, "--all")
        hints.append(f"try dead letters again with: {again}")
    if not look.now.is_finished and not look.now.workers:
        hints.append(f"resume with: {command_line(place, 'resume', run_id)}")
    return hints


def _public_settings(now: RunStanding) -> dict[str, Any]:
    """Without what may be secret: the values of headers, and passwords in URLs."""
    assert now.settings is not None  # noqa: S101 - asked before
    identity = {name: _public(value) for name, value in now.settings.identity.items()}
    speed = {name: value for name, value in now.settings.speed.items() if name not in _SECRET}
    headers = [name for name, _ in now.settings.speed.get("headers", [])]
    return {"identity": identity, "speed": {**speed, "headers": headers}}


def _public(value: Any) -> Any:
    if isinstance(value, list):
        return [_public(one) for one in value]
    return shown(value) if isinstance(value, str) else value
