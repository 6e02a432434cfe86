"""The store in one file: :class:`SQLiteStore`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast
from weakref import finalize

from data_fetcher_core.checking import is_number
from data_fetcher_core.clock import SYSTEM_CLOCK, Clock
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.sqlite.connection import Connect, connect
from data_fetcher_core.kv_store.sqlite.reserve import LEAST_RESERVE
from data_fetcher_core.kv_store.sqlite.session import Session
from data_fetcher_core.kv_store.sqlite.transaction import SQLiteTransaction
from data_fetcher_core.kv_store.sqlite.writer import Writer
from data_fetcher_core.kv_store.transactional import TransactionalStore
from data_fetcher_core.showing import shown

T = TypeVar("T")


class SQLiteStore(TransactionalStore):
    """Durable, ordered, and shared by the processes of one host.

    ``synchronous="FULL"`` keeps what was acknowledged through a power cut; ``"NORMAL"`` through
    the death of the process only. ``busy_timeout`` is how long a verb waits for other processes.
    ``reserve_bytes`` is kept free for settling on a full disk.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: str = "FULL",
        busy_timeout: float = 5.0,
        reserve_bytes: int = 512 * 1024,
        default_ttl: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
        connect: Connect = connect,
    ) -> None:
        super().__init__(default_ttl=default_ttl, clock=clock)
        self._path = _checked_path(path)
        self._synchronous = _checked_synchronous(synchronous)
        self._busy_timeout = _checked_number("busy_timeout", busy_timeout)
        self._reserve_bytes = _checked_reserve(reserve_bytes)
        self._connect = connect
        self._writer: Writer | None = None

    async def transact(self, fn: Callable[[Transaction], T], *, urgent: bool = False) -> T:
        return cast("T", await self._running().run(fn, urgent=urgent))

    async def change_count(self) -> int:
        """Differs after another process, or another store object, has committed."""
        return cast("int", await self._running().run(SQLiteTransaction.change_count, urgent=False))

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None and writer.pid == os.getpid():
            self._forgotten.detach()
            await writer.finish()

    def __repr__(self) -> str:
        state = "closed" if self._writer is None else self._writer.session.state
        return f"SQLiteStore({str(self._path)!r}, {state})"

    def _running(self) -> Writer:
        """The writer of this process: one that was started before a fork is the parent's."""
        if self._writer is None or self._writer.pid != os.getpid():
            session = Session(
                self._path,
                synchronous=self._synchronous,
                reserve_bytes=self._reserve_bytes,
                clock=self._clock,
                connect=self._connect,
            )
            writer = Writer(session, self._busy_timeout)
            writer.start()
            self._writer = writer
            # A store that is forgotten, not closed, takes its thread with it.
            self._forgotten = finalize(self, writer.stop)
            self._forgotten.atexit = False
        return self._writer


def _checked_path(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ConfigurationError(f"path must be that of a file, not {shown(path)}")
    text = os.fsdecode(path)
    if text in {"", ":memory:"} or "\0" in text:
        raise ConfigurationError(
            f"{shown(text)} is no path of a file: for a store that lives in memory use memory://"
        )
    try:
        return Path(text).resolve()
    except (OSError, RuntimeError, UnicodeError) as error:
        raise ConfigurationError(f"{shown(text)} leads nowhere: {shown(error)}") from error


def _checked_synchronous(synchronous: str) -> str:
    if synchronous not in ("FULL", "NORMAL"):
        raise ConfigurationError(
            f"synchronous must be 'FULL' or 'NORMAL', not {shown(synchronous)}"
        )
    return synchronous


def _checked_number(name: str, value: float) -> float:
    if not is_number(value, 0) or value == math.inf:
        raise ConfigurationError(f"{name} must be a number from 0 up, not {shown(value)}")
    return value


def _checked_reserve(size: float) -> int:
    if 0 < _checked_number("reserve_bytes", size) < LEAST_RESERVE:
        raise ConfigurationError(
            f"reserve_bytes must be 0 for none, or at least {LEAST_RESERVE}: {shown(size)} is too "
            "little to settle anything with"
        )
    return int(size)
