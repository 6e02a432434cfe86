"""The store's machine and the way there: messages are lost, late, or answered to nobody.

A request that was sent is on its way, whatever becomes of who sent it: it may arrive after its
sender gave up, or after what was sent later. One that is very late does not outlive its sender:
the store forgets the operations of a client with the client, so an addition without a key that
was sent again, and then arrives once more after its sender is gone or was taken for dead, would
enter twice. A store that restarts keeps what it has committed.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.kv_store.transactional import TransactionalStore
from tests.simulation.loop import OWNER, VirtualLoop
from tests.simulation.plan import SILENCE
from tests.simulation.process import Process

T = TypeVar("T")
_FASTEST, _USUAL = 0.0002, 0.002


class Server:
    """The one store that all share."""

    def __init__(self, loop: VirtualLoop, chance: random.Random) -> None:
        self.data = MemoryStore()
        self.down_until = 0.0
        self.injected: Counter[str] = Counter()
        self.steps = 0
        self.on_the_way = 0
        self.changes = 0
        self.trace = hashlib.blake2b(digest_size=16)
        self._loop = loop
        self._chance = chance

    def note(self, what: str) -> None:
        """One more line of the trace: two runs with the same hash did the same."""
        self.trace.update(b"%.6f %s\n" % (self._loop.time(), what.encode()))

    def send(self, process: Process, fn: Callable[[Transaction], T]) -> asyncio.Future[T]:
        message = _Message(self, process, fn, self._loop.create_future())
        fault = process.message_faults.popleft() if process.message_faults else None
        kind = "" if fault is None else fault.kind
        if fault is not None:
            self.injected[kind] += 1
            if fault.count > 1:
                process.message_faults.appendleft(replace(fault, count=fault.count - 1))
        late = 0.0 if fault is None else fault.duration
        message.reply_fate, message.reply_late = kind, late if kind == "late reply" else 0.0
        if self.is_cut_off(process) or kind == "no answer":
            return message.reply
        if kind == "lost request":
            self.after(0.0, message.fail)
        else:
            self.on_the_way += 1
            message.late = kind == "late request"
            self.after(late if kind == "late request" else 0.0, message.arrive)
        return message.reply

    def is_cut_off(self, process: Process) -> bool:
        return self._loop.time() < process.cut_off_until

    def has_missed(self, process: Process) -> bool:
        """Whether it was silent for so long that it may have been taken for dead."""
        return bool(process.heard) and self._loop.time() - process.heard[-1] >= SILENCE

    @property
    def is_down(self) -> bool:
        return self._loop.time() < self.down_until

    def after(self, late: float, act: Callable[[], None]) -> None:
        pause = late + _FASTEST + _USUAL * self._chance.random() ** 2
        self._loop.call_later(pause, act, context=self._loop.outside)

    def run(self, process: Process, fn: Callable[[Transaction], T], *, aborts: bool) -> T:
        self.steps += 1
        self.changes += 1
        # What a step asks about time it asks in the process that sent it.
        asking = OWNER.set(process)
        try:
            return at_once(self.data, _aborting(fn) if aborts else fn)
        finally:
            OWNER.reset(asking)
            self.note(f"{process.name} {len(self.data._data)}")


class _Message:
    """One request and its reply."""

    def __init__(
        self,
        server: Server,
        process: Process,
        fn: Callable[[Transaction], Any],
        reply: asyncio.Future[Any],
    ) -> None:
        self.reply = reply
        self.reply_fate = ""
        self.reply_late = 0.0
        self.late = False
        self._server = server
        self._process = process
        self._fn = fn

    def arrive(self) -> None:
        server = self._server
        server.on_the_way -= 1
        if self.late and self._outlives_its_sender():
            return
        if server.is_down:
            server.after(0.0, self.fail)
            return
        outcome: Any = None
        error: Exception | None = None
        try:
            aborts = self.reply_fate == "aborted step"
            outcome = server.run(self._process, self._fn, aborts=aborts)
        except Exception as failure:  # noqa: BLE001 - it is the answer
            error = failure
        while self._process.unheard:
            self._process.unheard.pop()()
        if self.reply_fate == "lost reply":
            server.after(0.0, self.fail)
        else:
            server.after(self.reply_late, lambda: self._answer(outcome, error))

    def _outlives_its_sender(self) -> bool:
        process = self._process
        return process.dead or process.has_left or self._server.has_missed(process)

    def _answer(self, outcome: Any, error: Exception | None) -> None:
        if self.reply.done() or self._server.is_cut_off(self._process):
            return
        if self._server.is_down:
            self.fail()
        elif error is None:
            self.reply.set_result(outcome)
        else:
            self.reply.set_exception(error)

    def fail(self) -> None:
        """The connection is gone; what became of the request is not known."""
        if not self.reply.done() and not self._server.is_cut_off(self._process):
            self.reply.set_exception(StoreUnavailable("simulated: the connection is gone"))


class RemoteStore(TransactionalStore):
    """The store as one process sees it. Others write, too: it can tell that something changed."""

    def __init__(self, server: Server, process: Process) -> None:
        super().__init__(clock=process.clock)
        self.process = process
        self._server = server

    async def transact(self, fn: Callable[[Transaction], T], *, urgent: bool = False) -> T:
        return await self._server.send(self.process, fn)

    async def change_count(self) -> int:
        return self._server.changes

    async def close(self) -> None:
        """Nothing to let go of."""


class _FailsHalfWay:
    """A transaction in which the disk gives out between two writes."""

    def __init__(self, inner: Transaction) -> None:
        self.get_many = inner.get_many
        self.range = inner.range
        self.delete_many = inner.delete_many

    def put_many(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        if list(pairs):
            raise StoreUnavailable("simulated: the store stopped in the middle of a step")


def _aborting(fn: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
    return lambda tx: fn(_FailsHalfWay(tx))


def at_once(store: MemoryStore, fn: Callable[[Transaction], T]) -> T:
    """A memory store never waits, so its verbs need no loop."""
    work = store.transact(fn)
    try:
        work.send(None)
    except StopIteration as end:
        done: T = end.value
        return done
    raise AssertionError("a memory store waited")
