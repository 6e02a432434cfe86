"""How a command that worked on a run ended: for a person, and for a script. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from data_fetcher_core.cli.exit_codes import ExitCode
from data_fetcher_core.cli.places import Place, command_line
from data_fetcher_core.cli.view.figures import count, duration, rate
from data_fetcher_core.cli.view.showable import showable
from data_fetcher_core.core import QueueStats

_STATES = {
    ExitCode.FINISHED: "finished",
    ExitCode.DEAD_LETTERS: "finished with dead letters",
    ExitCode.STOPPED: "stopped",
}
_STATS = {
    "done": "completed",
    "ready": "ready",
    "delayed": "delayed",
    "in_flight": "leased",
    "dead": "dead",
    "retried": "retried",
}
_ERRORS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Summary:
    """``fetched`` and ``skipped`` are this call's; the rest is the whole run's.

    ``have_more``: locators that were not exhausted when nothing was left to do. ``limit``: so many
    pages were asked for, and found. ``passed_over``: lines of a list that are no URL.
    """

    run_id: str
    place: Place
    out: str
    stats: QueueStats = field(default_factory=QueueStats)
    fetched: int = 0
    skipped: int = 0
    seconds: float = 0.0
    errors: tuple[str, ...] = ()
    is_stopped: bool = False
    was_finished: bool = False
    have_more: tuple[str, ...] = ()
    limit: int | None = None
    passed_over: int | None = None

    @property
    def exit_code(self) -> ExitCode:
        if self.is_stopped:
            return ExitCode.STOPPED
        if self.stats.dead:
            return ExitCode.DEAD_LETTERS
        return ExitCode.STOPPED if self.have_more else ExitCode.FINISHED

    @property
    def state(self) -> str:
        given_up = self.exit_code is ExitCode.DEAD_LETTERS and self.have_more
        return "stopped by dead letters" if given_up else _STATES[self.exit_code]

    @property
    def is_known(self) -> bool:
        """Not where the store could not be asked any more."""
        return self.stats.enqueued > 0

    def to_json(self) -> dict[str, Any]:
        stats = {name: getattr(self.stats, at) for name, at in _STATS.items()}
        return {
            "run_id": self.run_id,
            "state": self.state,
            "exit_code": int(self.exit_code),
            **(stats if self.is_known else dict.fromkeys(_STATS)),
            "fetched_now": self.fetched,
            "not_fetched_now": self.skipped,
            "lines_passed_over": self.passed_over,
            "max_pages_reached": self.limit is not None,
            "seconds": round(self.seconds, 3),
            "out": self.out,
            "store": str(self.place),
            "resume": self._resume() if self.is_stopped or self.have_more else None,
        }

    def lines(self) -> list[str]:
        if self.exit_code is ExitCode.STOPPED:
            return [self._stopped(), *self._more(), f"resume with: {self._resume()}"]
        first = [self._stopped(), *self._more()] if self.have_more else [self._finished()]
        pages = f"its pages are in {self.out}"
        return [*first, *self._bounds(), pages, *self._dead(), *self._again()]

    def _finished(self) -> str:
        if self.was_finished:
            return f"run {self.run_id} was finished before: {_pages(self.stats.completed)}"
        done_now = self.fetched + self.skipped
        now = "" if done_now == self.stats.completed else f" ({count(done_now)} now)"
        skipped = f", {count(self.skipped)} of them not fetched" if self.skipped else ""
        pace = f", {rate(done_now / self.seconds)} pages/s" if self.seconds >= 1 else ""
        return (
            f"finished: {_pages(self.stats.completed)}{now}{skipped} "
            f"in {duration(self.seconds)}{pace}"
        )

    def _stopped(self) -> str:
        if not self.is_known:
            return "stopped"
        left = self.stats.size + self.stats.leased
        return f"stopped: {_pages(self.stats.completed)} done, {count(left)} left"

    def _more(self) -> list[str]:
        return [f"it is not finished: the locator {name} has more" for name in self.have_more]

    def _bounds(self) -> list[str]:
        """What was left out, and is no failure."""
        told = []
        if self.limit is not None:
            told.append(f"the limit of {_pages(self.limit)} was reached (--max-pages)")
        if self.passed_over:
            told.append(f"{_lines(self.passed_over)} of the list passed over: no URLs")
        return told

    def _dead(self) -> list[str]:
        if not self.stats.dead:
            return []
        letters = "1 dead letter" if self.stats.dead == 1 else f"{self.stats.dead:,} dead letters"
        shown = [f"  {showable(_said_once(error))}" for error in self.errors[-_ERRORS_SHOWN:]]
        look = command_line(self.place, "dead", "list", self.run_id)
        again = command_line(self.place, "dead", "requeue", self.run_id, "--all")
        return [
            f"{letters}: requests that were given up" + (", the last of them:" if shown else ""),
            *shown,
            f"look at them with: {look}",
            f"try them again with: {again} && {self._resume()}",
        ]

    def _again(self) -> list[str]:
        if not self.was_finished:
            return []
        return [f"begin anew after: {command_line(self.place, 'forget', self.run_id)}"]

    def _resume(self) -> str:
        return command_line(self.place, "resume", self.run_id)


def _pages(number: int) -> str:
    return "1 page" if number == 1 else f"{count(number)} pages"


def _lines(number: int) -> str:
    return "1 line" if number == 1 else f"{count(number)} lines"


def _said_once(error: str) -> str:
    """A loader's messages begin with the URL that they are about, as this one does."""
    url, _, rest = error.partition(": ")
    return rest if rest.startswith(f"{url}: ") else error


def opening_line(run_id: str, before: QueueStats, place: Place, out: str) -> str:
    """Which run this is, and where everything of it lies."""
    left = before.size + before.leased
    done = f": {_pages(before.completed)} done, {count(left)} left" if before.enqueued else ""
    goes = "goes on" if before.enqueued else "begins"
    return f"run {run_id} {goes}{done}\n  store {place}\n  pages {out}"


def gone_lines(run_id: str, out: str) -> list[str]:
    """What is left of a run that the store does not hold any more."""
    return [
        f"the run {run_id} is gone, and cannot be resumed; its pages stay in {out}",
        "begin anew with the command that began it, and another --out if it had one",
    ]


def stopping_line(in_flight: int | None, grace: float) -> str:
    if in_flight == 0:
        return "stopping"
    number = "what is" if in_flight is None else count(in_flight)
    return f"stopping: finishing {number} in flight, up to {grace:g} s; again to stop at once"
