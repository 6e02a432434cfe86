"""What the next start finds after a cut: opened by the real store, looked at by SQLite itself."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from data_fetcher_core.errors import DataFetcherError
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from tests.power.account import settle_account
from tests.power.cuts import Cut
from tests.power.record import memory_directory
from tests.power.workload import DATABASE, read_state, state_of
from tests.sqlite_support import everything


class Outcome(StrEnum):
    HELD = "held"
    LOST = "lost"
    """Something that was acknowledged is gone."""
    CORRUPT = "corrupt"
    """SQLite finds the file damaged."""
    HALF = "half"
    """It is as it never was after any commit, or its account does not add up."""
    REFUSED = "refused"
    """The store would not open, though there is nothing wrong with it."""


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    cut: Cut
    commits: int = 0
    detail: str = ""

    @property
    def undone(self) -> int:
        """How many commits went that had been acknowledged."""
        return max(0, self.cut.acknowledged - self.commits)


class Judge:
    """Opens cuts one after another. The account of each state is made once."""

    def __init__(self, *, may_undo: bool) -> None:
        self._may_undo = may_undo
        self._settled: set[tuple[str, int]] = set()

    async def judge(self, cut: Cut) -> Verdict:
        with laid_out(cut.files) as directory:
            verdict = await self._opened(cut, directory / DATABASE)
        if verdict.outcome is not Outcome.HELD or not self._first_time(verdict):
            return verdict
        with laid_out(cut.files) as directory:
            wrong = await settle_account(directory / DATABASE, cut.record, verdict.commits)
        return Verdict(Outcome.HALF, cut, verdict.commits, wrong) if wrong else verdict

    async def _opened(self, cut: Cut, path: Path) -> Verdict:
        try:
            async with SQLiteStore(path, reserve_bytes=0) as store:
                seen = state_of(sorted((await everything(store)).items()))
        except DataFetcherError as error:
            return self._refused(cut, path, f"{type(error).__name__}: {error}")
        return self._compared(cut, path, seen)

    def _refused(self, cut: Cut, path: Path, why: str) -> Verdict:
        """What was refused for a good reason is lost or corrupt; else it is refused."""
        found = self._compared(cut, path, None) if path.exists() else None
        if found is None or found.outcome is Outcome.HELD:
            return Verdict(Outcome.REFUSED, cut, 0, why)
        return Verdict(found.outcome, cut, found.commits, f"{found.detail}; {why}")

    def _compared(self, cut: Cut, path: Path, seen: str | None) -> Verdict:
        try:
            with closing(sqlite3.connect(path)) as connection:
                (sound,) = connection.execute("PRAGMA integrity_check").fetchone()
                commits, state = read_state(connection)
        except (sqlite3.Error, ValueError) as error:
            return Verdict(Outcome.CORRUPT, cut, 0, repr(error))
        if sound != "ok":
            return Verdict(Outcome.CORRUPT, cut, commits, str(sound))
        if not {state, seen or state} <= cut.record.states.get(commits, set()):
            return Verdict(Outcome.HALF, cut, commits, f"no commit left {commits}: {state}, {seen}")
        if commits < cut.acknowledged and not self._may_undo:
            detail = f"{cut.acknowledged} commits were acknowledged, {commits} are there"
            return Verdict(Outcome.LOST, cut, commits, detail)
        return Verdict(Outcome.HELD, cut, commits)

    def _first_time(self, verdict: Verdict) -> bool:
        known = verdict.cut.record.name, verdict.commits
        is_new = known not in self._settled
        self._settled.add(known)
        return is_new


@contextmanager
def laid_out(files: dict[str, bytes]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=memory_directory(), prefix="power-") as place:
        directory = Path(place)
        for name, content in files.items():
            (directory / name).write_bytes(content)
        yield directory
