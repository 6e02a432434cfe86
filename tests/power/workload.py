"""The process that is recorded: ``python -m tests.power.workload DIRECTORY NOTES OPTIONS``.

The real queue on the real store does a bit of everything, as its seed says. Before and after each
step, and after each COMMIT, a line goes to the file of notes, which is part of the same trace.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sqlite3
import sys
from collections.abc import Awaitable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from data_fetcher_core import open_queue
from data_fetcher_core.core import Entry
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue, Lease, QueueOptions
from data_fetcher_core.testing import ManualClock
from tests.harness import crash, settled, silence

RUN = "power"
DATABASE = "run.db"
_PAGE_SIZES = (512, 1024, 4096, 4096)
_CHECKPOINT_PAGES = (15, 60, 1000)
# Of one size: what makes a file longer writes after a seek, which the record does not follow.
_RESERVES = (65_536, 0)


def state_of(pairs: Iterable[tuple[Any, Any]]) -> str:
    """A digest of everything a store holds; in a damaged one that is not always bytes."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(repr(pair).encode())
    return digest.hexdigest()[:32]


EMPTY = state_of([])


def read_state(connection: sqlite3.Connection) -> tuple[int, str]:
    """How many commits the file has seen, and its digest."""
    ((number,),) = sqlite3.Connection.execute(connection, "SELECT n FROM commits").fetchall()
    pairs = sqlite3.Connection.execute(connection, "SELECT k, v FROM kv ORDER BY k")
    return number, state_of(pairs)


class Notes:
    """Each note is one write, so that the trace has it in its place."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        self._commits = -1
        self._steps = 0

    def __call__(self, *note: Any) -> None:
        os.write(self._file, json.dumps(note).encode())

    def commit(self, connection: sqlite3.Connection) -> sqlite3.Cursor:
        number, state = read_state(connection)
        is_new = number != self._commits
        if is_new:
            self("trying", number, state)
        cursor = sqlite3.Connection.execute(connection, "COMMIT")
        self._commits = number
        if is_new:
            self("commit", number)
        return cursor

    async def step(self, doing: Awaitable[Any], **what: Any) -> Any:
        self._steps += 1
        step = self._steps
        self("begun", step, what)
        answer = await doing
        self("acknowledged", step)
        return answer


def connection_maker(notes: Notes, dice: random.Random, broken: str) -> Any:
    """Connections like the store's own, but for their sizes, and what is ``broken`` on purpose."""
    page_size, pages = dice.choice(_PAGE_SIZES), dice.choice(_CHECKPOINT_PAGES)

    class Noted(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if broken == "no-sync" and sql.startswith("PRAGMA synchronous"):
                sql = "PRAGMA synchronous = OFF"
            if sql == "COMMIT":
                return notes.commit(self)
            return super().execute(sql, parameters)

    def make(uri: str) -> sqlite3.Connection:
        how: dict[str, Any] = {"uri": True, "timeout": 0, "check_same_thread": False}
        made = sqlite3.connect(uri, isolation_level=None, factory=Noted, **how)
        if "mode=rw" in uri:
            sqlite3.Connection.execute(made, f"PRAGMA page_size = {page_size}")
            sqlite3.Connection.execute(made, f"PRAGMA wal_autocheckpoint = {pages}")
        return made

    return make


class Side:
    """A store object with a queue on it; there may be two of them on one file."""

    def __init__(self, path: Path, dice: random.Random, clock: ManualClock, make: Any) -> None:
        self._make_store = partial(
            SQLiteStore, path, reserve_bytes=dice.choice(_RESERVES), clock=clock, connect=make
        )
        self._clock = clock
        self.held: list[Lease] = []

    def open(self, synchronous: str) -> None:
        self.store = self._make_store(synchronous=synchronous)
        self.queue: KVStoreQueue = open_queue(
            self.store,
            run_id=RUN,
            serializer=JSONSerializer(),
            options=QueueOptions(max_attempts=3, compress_over=0),
            clock=self._clock,
            subscriber=lambda _: None,
        )

    async def close(self) -> None:
        self.held.clear()
        await self.queue.close()
        await self.store.close()


class Workload:
    def __init__(self, directory: Path, notes: Notes, how: dict[str, Any]) -> None:
        self.dice, self.notes = random.Random(how["seed"]), notes
        self.sync, self.broken = how["synchronous"], how["broken"]
        self.clock = ManualClock()
        make = connection_maker(notes, self.dice, self.broken)
        count = 1 + (self.dice.random() < 0.4)
        path = directory / DATABASE
        self.sides = [Side(path, self.dice, self.clock, make) for _ in range(count)]
        self.names = 0

    async def run(self, steps: int) -> None:
        for side in self.sides:
            side.open(self.sync)
        actions = {
            self.enqueue: 4, self.lease: 4, self.complete: 5, self.release: 2, self.bury: 1,
            self.crowd: 2, self.pass_time: 1, self.cancel: 1, self.requeue: 1, self.reopen: 1.5,
            self.crash: 0.5,
        }  # fmt: skip
        chosen = self.dice.choices(list(actions), list(actions.values()), k=steps)
        for action in [self.enqueue, self.lease, self.complete, *chosen]:
            await action(self.dice.choice(self.sides))
        for side in self.sides:
            await self.notes.step(side.close(), kind="close")

    def new_entries(self, most: int) -> list[Entry]:
        return [self.new_entry() for _ in range(self.dice.randint(1, most))]

    def new_entry(self) -> Entry:
        self.names += 1
        name = f"{self.names:04}"
        size = self.dice.choice((0, 0, 50, 400, 3000))
        return Entry(
            {"name": name, "text": self.dice.randbytes(size).hex()},
            id=name,
            lane=self.dice.choice(("", "one", "two")),
            key=self.dice.choice((None, name)),
            delay=self.dice.choice((0.0, 0.0, 0.0, 5.0)),
        )

    async def enqueue(self, side: Side) -> None:
        entries = self.new_entries(6)
        cursor = f"cursor {self.names}" if self.dice.random() < 0.3 else ""
        await self.notes.step(
            side.queue.enqueue(entries, checkpoint={cursor: 1} if cursor else None),
            kind="enqueue", names=ids(entries), cursor=cursor,
        )  # fmt: skip

    async def lease(self, side: Side) -> None:
        side.held += await self.notes.step(side.queue.lease(self.dice.randint(1, 5)), kind="lease")

    async def complete(self, side: Side) -> None:
        if side.held:
            lease = side.held.pop(self.dice.randrange(len(side.held)))
            children = self.new_entries(4) if self.dice.random() < 0.7 else []
            await self.notes.step(
                self._completed(side, lease, children),
                kind="complete", name=lease.id, children=ids(children),
            )  # fmt: skip

    async def _completed(self, side: Side, lease: Lease, children: list[Entry]) -> None:
        page = {page_of(lease.id): 1}
        if self.broken == "two-steps":
            await lease.complete((), page, lease.id)
            await side.queue.enqueue(children)
        else:
            await lease.complete(children, page, lease.id)

    async def release(self, side: Side) -> None:
        if side.held:
            lease = side.held.pop()
            delay = self.dice.choice((0.0, 3.0))
            await self.notes.step(
                lease.release(delay, error="not now"), kind="release", name=lease.id
            )

    async def bury(self, side: Side) -> None:
        if side.held:
            lease = side.held.pop()
            await self.notes.step(lease.bury("no good"), kind="bury", name=lease.id)

    async def crowd(self, side: Side) -> None:
        """Several at once, so that they share a transaction."""
        doing = (self.enqueue, self.complete, self.complete, self.enqueue, self.lease)
        await asyncio.gather(*(action(self.dice.choice(self.sides)) for action in doing))

    async def pass_time(self, side: Side) -> None:
        self.clock.advance(6.0)
        await self.notes.step(side.queue.sweep(), kind="sweep")

    async def cancel(self, side: Side) -> None:
        names = [f"{self.dice.randint(1, self.names):04}" for _ in range(2)]
        await self.notes.step(side.queue.cancel(names), kind="cancel", names=names)

    async def requeue(self, side: Side) -> None:
        await self.notes.step(side.queue.requeue(), kind="requeue")

    async def reopen(self, side: Side) -> None:
        await self.notes.step(side.close(), kind="close")
        side.open(self.sync)

    async def crash(self, side: Side) -> None:
        """A consumer dies, and another finds what it held."""
        await settled(side.queue)
        await crash(side.queue)
        side.held.clear()
        for other in self.sides:
            other.held.clear()
        await self.notes.step(silence(side.queue, self.clock), kind="sweep")


def page_of(name: str) -> str:
    """The checkpoint that goes with the completion of a request."""
    return f"page {name}"


def ids(entries: Iterable[Entry]) -> list[str]:
    return [str(entry.id) for entry in entries]


def main(directory: str, notes: str, options: str) -> None:
    how = json.loads(options)
    workload = Workload(Path(directory), Notes(Path(notes)), how)
    asyncio.run(workload.run(how["steps"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
