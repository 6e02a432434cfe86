"""The database, open: connection, companion, guard and reserve, as one thing to enter and leave."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from data_fetcher_core.clock import Clock
from data_fetcher_core.errors import StoreLost
from data_fetcher_core.kv_store.sqlite.companion import Companion
from data_fetcher_core.kv_store.sqlite.connection import Connect, as_uri, configure
from data_fetcher_core.kv_store.sqlite.faults import (
    SQL_ERRORS,
    Immovable,
    is_full,
    may_hide_full,
)
from data_fetcher_core.kv_store.sqlite.guard import Guard
from data_fetcher_core.kv_store.sqlite.layout import (
    begins_anew,
    beside,
    commits_seen,
    create,
    inspect,
    verify,
)
from data_fetcher_core.kv_store.sqlite.log import follows_on
from data_fetcher_core.kv_store.sqlite.place import check_place
from data_fetcher_core.kv_store.sqlite.renewal import renew
from data_fetcher_core.kv_store.sqlite.reserve import Reserve

_log = logging.getLogger("data_fetcher_core.kv_store.sqlite")

# SQLite counts changes per connection; a new connection must not look like the one before.
_epochs = itertools.count(1)


class Session:
    """Used by one thread at a time, between :meth:`enter` and :meth:`leave`."""

    def __init__(
        self, path: Path, *, synchronous: str, reserve_bytes: int, clock: Clock, connect: Connect
    ) -> None:
        self.path = path
        self.reserve = Reserve(beside(path, "-reserve"), reserve_bytes, clock)
        self.epoch = 0
        self._synchronous = synchronous
        self._connect = connect
        self._companion = Companion(beside(path, "-lock"))
        self._connection: sqlite3.Connection | None = None
        self._guard: Guard | None = None
        self._page_size = 0
        self._admitted = False

    @property
    def state(self) -> str:
        """In a word, for people."""
        if self._connection is None:
            return "closed"
        return "full" if self.reserve.refusing else "open"

    def enter(self) -> bool:
        """Take the lock of the store; ``False`` if another process has it."""
        if not self._admitted:
            # Before the companion is made: nothing may appear beside a file that is not ours.
            check_place(self.path)
            inspect(self.path, self._connect)
            self._admitted = True
        return self._companion.try_lock()

    def leave(self) -> bool:
        """Let go of the lock; whether another process has been waiting for it."""
        return self._companion.unlock()

    def holder(self) -> str:
        return self._companion.holder()

    def connection(self) -> sqlite3.Connection:
        """The connection, opened if need be."""
        while self._connection is None:
            try:
                self._connection = self._open()
                self.epoch = next(_epochs)
            except (OSError, *SQL_ERRORS) as error:
                full = may_hide_full(error) and self.reserve.no_room()
                if not (full and self.reserve.spend()):
                    raise
        return self._connection

    def check(self) -> None:
        """:class:`StoreLost` if the path no longer leads to what is open."""
        missing = None if self._guard is None else self._guard.missing()
        if missing is None:
            return
        if missing == self.path:
            # Its log lies beside another file now, and SQLite would take it in there.
            self.undo()
            self.shorten_log()
        raise StoreLost(
            f"{missing} was removed or replaced while the store was open: put it back; nothing "
            "was written to what is there now"
        )

    def count_commit(self, connection: sqlite3.Connection) -> int:
        """Number this commit, inside its transaction."""
        connection.execute("UPDATE commits SET n = n + 1")
        number = commits_seen(connection, self.path)
        self._check_number(number - 1, self._companion.acknowledged())
        return number

    def acknowledge(self, number: int) -> None:
        """Remember a commit that is durable; without FULL a power cut may still undo it."""
        if self._synchronous == "FULL":
            try:
                self._companion.acknowledge(number)
            except OSError as error:
                _log.warning("%s could not be updated: %s", self._companion.path, error)

    def undo(self) -> None:
        """Roll back, where SQLite has not done so itself."""
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def bound_log(self, connection: sqlite3.Connection) -> bool:
        """Keep what the log will add to the database below what the reserve can make room for.

        On a full disk the log can be used again only after it has been moved into the database.
        ``False`` if there was no room for that already.
        """
        if self.reserve.size and self._growth(connection) * 4 > self.reserve.size:
            return self._move_log(connection, "PASSIVE")
        return True

    def pages(self, connection: sqlite3.Connection) -> int:
        """How long the database is, with what is in the log and in the open transaction."""
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        return int(pages)

    def check_growth(self, connection: sqlite3.Connection, before: int) -> None:
        """:class:`Immovable` if this makes the database longer than the log can be moved with."""
        grows = self.pages(connection) > before
        if grows and not self.reserve.covers(self._growth(connection)):
            raise Immovable(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def shorten_log(self) -> bool:
        """Move all of the log into the database; ``False`` if there was no room for it."""
        return self._connection is None or self._move_log(self._connection, "TRUNCATE")

    def make_room(self) -> None:
        """Move the log into the database, if need be with room the reserve lends for it."""
        if not self.shorten_log():
            self.reserve.lend(self.shorten_log)

    def drop(self) -> None:
        """Close the connection; the next use opens, and looks at the file, anew."""
        connection, self._connection = self._connection, None
        self._admitted = False
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def close(self, *, force: bool) -> bool:
        """Let go of everything, under the lock: ``force`` does without it."""
        if self._connection is not None:
            if self._try_lock():
                # SQLite does so too, but on a full disk it would leave the log that fills it.
                self.make_room()
            elif not force:
                return False
        self.drop()
        self._companion.close()
        return True

    def _try_lock(self) -> bool:
        try:
            return self._companion.try_lock()
        except OSError:  # the directory is gone: nobody else can be there
            return True

    def _open(self) -> sqlite3.Connection:
        acknowledged = self._companion.acknowledged()
        if begins_anew(self.path, acknowledged):
            create(self.path, self._connect)
        self._check_log()
        connection = self._connect(as_uri(self.path, "mode=rw"))
        try:
            verify(connection, self.path)
            configure(connection, self._synchronous)
            # This read also opens the log, which the guard wants to see.
            commits = commits_seen(connection, self.path)
            self._check_number(commits, acknowledged)
            renew(beside(self.path, "-wal"), connection)
            (self._page_size,) = connection.execute("PRAGMA page_size").fetchone()
            self._guard = Guard(self.path)
            if acknowledged is None:
                self._begin_companion(commits)
        except BaseException:
            connection.close()
            raise
        return connection

    def _growth(self, connection: sqlite3.Connection) -> int:
        try:
            return self.pages(connection) * self._page_size - self.path.stat().st_size
        except (OSError, *SQL_ERRORS):
            return 0

    def _move_log(self, connection: sqlite3.Connection, how: str) -> bool:
        try:
            connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
        except SQL_ERRORS as error:
            return not is_full(error)
        return True

    def _begin_companion(self, commits: int) -> None:
        self._companion.acknowledge(commits if self._synchronous == "FULL" else 0)
        self._companion.sync()

    def _check_log(self) -> None:
        log = beside(self.path, "-wal")
        if not follows_on(log, self.path, self._connect):
            raise StoreLost(
                f"{log} goes with a newer {self.path.name} than is there: put that one back, or "
                f"remove {log} and {self._companion.path} to go on with the older one"
            )

    def _check_number(self, commits: int, acknowledged: int | None) -> None:
        if commits < (acknowledged or 0):
            raise StoreLost(
                f"{self.path} has seen {commits} commits, but {acknowledged} were acknowledged: "
                "its -wal was removed or damaged, or an older copy took its place. Restore it, or "
                f"remove {self._companion.path} to go on with what is left"
            )
