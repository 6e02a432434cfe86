"""Group commit: everything that waits, in one transaction; what fails, alone.

Nobody is answered before COMMIT. A savepoint keeps each function's failure to itself. Some errors
of SQLite end the whole transaction, savepoints included (no room, above all): then each function
runs once more, in a transaction of its own.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from data_fetcher_core.errors import DataFetcherError, StoreFull
from data_fetcher_core.kv_store.sqlite.faults import (
    SQL_ERRORS,
    Immovable,
    as_store_error,
    ends_transaction,
    is_busy,
    is_failed_write,
    is_full,
)
from data_fetcher_core.kv_store.sqlite.outcomes import Blocked, Failed, Outcome
from data_fetcher_core.kv_store.sqlite.session import Session
from data_fetcher_core.kv_store.sqlite.transaction import SQLiteTransaction

_EDGE = (DataFetcherError, OSError, *SQL_ERRORS)


class Step(Protocol):
    """A function that waits to be run, and whether it may use the last room there is."""

    @property
    def fn(self) -> Callable[[SQLiteTransaction], Any]: ...

    @property
    def urgent(self) -> bool: ...


class _TransactionLost(Exception):
    """The transaction is undone with everything in it; any step may run again."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class GroupCommit:
    """Runs functions against a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.others_wait = False

    def run(self, steps: Sequence[Step]) -> list[Outcome]:
        """The outcome of each step. Never waits: what cannot run now is :class:`Blocked`."""
        try:
            entered = self._session.enter()
        except _EDGE as error:
            return self._none_kept(steps, error)
        if not entered:
            return [Blocked(self._session.holder)] * len(steps)
        try:
            return self._run_entered(steps)
        finally:
            self.others_wait = self._session.leave()

    def _run_entered(self, steps: Sequence[Step]) -> list[Outcome]:
        try:
            self._session.connection()
            # Once: what is given up for a step below is not put back before that has run.
            self._session.reserve.look()
        except _EDGE as error:
            return self._none_kept(steps, error)
        if len(steps) > 1:
            try:
                return self._together(steps)
            except _TransactionLost:
                pass
        return [self._alone(step) for step in steps]

    def _alone(self, step: Step) -> Outcome:
        """Run one step by itself; where there is no room, make some and try again."""
        reserve = self._session.reserve
        outcome = self._attempt(step)
        if _wants_room(outcome) and (step.urgent or not reserve.refusing):
            self._session.make_room()
            outcome = self._attempt(step)
        while _wants_more(outcome) and step.urgent and reserve.spend():
            self._session.shorten_log()
            outcome = self._attempt(step)
        if _wants_room(outcome) and not reserve.refusing:
            reserve.refuse()
        return outcome

    def _attempt(self, step: Step) -> Outcome:
        try:
            return self._together([step])[0]
        except _TransactionLost as lost:
            return Failed(as_store_error(lost.error, self._session.path))

    def _together(self, steps: Sequence[Step]) -> list[Outcome]:
        """One transaction over all steps, or :class:`_TransactionLost`."""
        try:
            connection = self._session.connection()
            connection.execute("BEGIN IMMEDIATE")
            before, pages = connection.total_changes, self._session.pages(connection)
            outcomes = self._run_all(connection, steps)
            self._commit(connection, pages, changed=connection.total_changes != before)
        except _EDGE as error:
            return self._none_kept(steps, error)
        return outcomes

    def _run_all(self, connection: sqlite3.Connection, steps: Sequence[Step]) -> list[Outcome]:
        try:
            if len(steps) == 1:
                return [self._run_one(connection, steps[0], "ROLLBACK")]
            return [self._run_apart(connection, step) for step in steps]
        except SQL_ERRORS as error:
            raise self._lost(self._named(error)) from error

    def _run_apart(self, connection: sqlite3.Connection, step: Step) -> Outcome:
        connection.execute("SAVEPOINT step")
        outcome = self._run_one(connection, step, "ROLLBACK TO step")
        connection.execute("RELEASE step")
        return outcome

    def _run_one(self, connection: sqlite3.Connection, step: Step, undo: str) -> Outcome:
        session = self._session
        refusing = session.reserve.refusing and not step.urgent
        tx = SQLiteTransaction(connection, session.path, epoch=session.epoch, refusing=refusing)
        outcome = tx.run(step.fn)
        if tx.error is not None and (ends_transaction(tx.error) or not connection.in_transaction):
            raise self._lost(self._named(tx.error))
        if isinstance(outcome, Failed):
            connection.execute(undo)
        return outcome

    def _commit(self, connection: sqlite3.Connection, pages: int, *, changed: bool) -> None:
        if not connection.in_transaction:  # the only step has failed
            return
        self._session.check()
        try:
            if changed:
                self._session.check_growth(connection, before=pages)
            number = self._session.count_commit(connection) if changed else None
            connection.execute("COMMIT")
        except (Immovable, sqlite3.Error) as error:
            if is_full(named := self._named(error)):
                raise self._lost(named) from error
            raise
        if number is not None:
            self._session.acknowledge(number)
            if not self._session.bound_log(connection):
                self._session.make_room()

    def _named(self, error: BaseException) -> BaseException:
        """A lack of room by its name."""
        if is_failed_write(error) and self._session.reserve.no_room():
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._session.path))
        return error

    def _lost(self, error: BaseException) -> _TransactionLost:
        if is_full(error):
            self._session.undo()
        else:
            self._session.drop()
        return _TransactionLost(error)

    def _none_kept(self, steps: Sequence[Step], error: BaseException) -> list[Outcome]:
        """Nobody runs again: after a failed COMMIT it is not known what the disk has kept."""
        if is_busy(error):
            self._session.undo()
            return [Blocked(lambda: "a program without our lock")] * len(steps)
        self._session.drop()
        return [Failed(as_store_error(error, self._session.path)) for _ in steps]


def _wants_more(outcome: Outcome) -> bool:
    """Whether more room would help: the less is kept of the reserve, the less may be added."""
    return _wants_room(outcome) and not _is_too_large(outcome)


def _is_too_large(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed) and isinstance(outcome.error.__cause__, Immovable)


def _wants_room(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed) and isinstance(outcome.error, StoreFull)
