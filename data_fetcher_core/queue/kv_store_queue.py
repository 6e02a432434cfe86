"""The queue: requests in lanes, leased and settled, over any store."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

from data_fetcher_core.clock import SYSTEM_CLOCK, Clock
from data_fetcher_core.core import DeadLetter, Enqueued, Priority, QueueStats
from data_fetcher_core.errors import ConfigurationError, DataFetcherError, StoreLost
from data_fetcher_core.events import Subscriber, guarded, log_event
from data_fetcher_core.kv_store.base import KeyValueStore, ScriptHost
from data_fetcher_core.kv_store.values import decode_value
from data_fetcher_core.queue import dead_letters, slices
from data_fetcher_core.queue.base import Serializer
from data_fetcher_core.queue.client import Client
from data_fetcher_core.queue.dequeuing import take_out
from data_fetcher_core.queue.engine import STEP, LaneChange
from data_fetcher_core.queue.engines import engine_for
from data_fetcher_core.queue.entries import (
    Defaults,
    check_count,
    check_duration,
    check_several,
    read_checkpoint,
    read_ids,
    read_item,
    read_lanes,
    read_namespace,
)
from data_fetcher_core.queue.insisting import insist
from data_fetcher_core.queue.intake import Intake
from data_fetcher_core.queue.lane_changes import limited, paced, reopened, shut_for
from data_fetcher_core.queue.lease import Lease
from data_fetcher_core.queue.options import QueueOptions, agree, microseconds
from data_fetcher_core.queue.records import decode
from data_fetcher_core.queue.selection import Selection, read_selection
from data_fetcher_core.queue.serializers import JSONSerializer
from data_fetcher_core.queue.session import Session
from data_fetcher_core.queue.stream import LeaseStream, Until
from data_fetcher_core.queue.together import Together
from data_fetcher_core.showing import shown

T = TypeVar("T")
_UNREADABLE = object()


class KVStoreQueue:
    """A durable queue in one namespace of a store.

    Constructing it does nothing; the first verb opens it. Any number of these, in any number of
    processes, may share a namespace. ``follows`` is whether it goes on with the run that took the
    place of a forgotten one; if not, it raises :class:`StoreLost`.
    """

    def __init__(
        self,
        kv_store: KeyValueStore,
        namespace: str,
        serializer: Serializer | None = None,
        *,
        options: QueueOptions | None = None,
        update: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        subscriber: Subscriber = log_event,
        follows: bool = True,
    ) -> None:
        if not isinstance(namespace, str) or not namespace:
            raise ConfigurationError(
                f"namespace must be a non-empty string, not {shown(namespace)}"
            )
        self._namespace = namespace
        self._store = kv_store
        self._serializer = serializer or JSONSerializer()
        self._options = options or QueueOptions()
        self._update = update
        self._clock = clock
        self._tell = guarded(subscriber)
        self._engine = engine_for(kv_store, read_namespace(namespace), clock, follows=follows)
        self._session: Session | None = None
        # Those that were to be closed, and whose leave the store has not heard of.
        self._leaving: set[Session] = set()
        self._opening: Together[Session] = Together()
        self._has_updated = False
        self._stored: Mapping[str, str] = {}
        self.is_shut = False

    # --- taking in -----------------------------------------------------------------------------

    async def enqueue(
        self,
        items: Iterable[Any],
        *,
        lane: str = "",
        priority: Priority | int | str | None = None,
        delay: float = 0.0,
        expires_in: float | None = None,
        checkpoint: Mapping[str, Any] | None = None,
    ) -> Enqueued:
        """Take items in: how many were new, with ``.ids`` of all.

        Items may be plain, or an :class:`Entry` that says more. A step of 1,000 is atomic; with
        a ``checkpoint`` everything is one step. If it fails, the error's ``accepted`` tells how
        many are safely in.
        """
        check_several(items, "enqueue takes an iterable of items")
        session = self.session_at_hand() or await self.open_session()
        intake = Intake(session.client, int(self._stored["capacity"]))
        return await intake.run(items, Defaults(lane, priority, delay, expires_in), checkpoint)

    # --- handing out ---------------------------------------------------------------------------

    async def lease(
        self,
        max_items: int = 1,
        wait: float = 0.0,
        lanes: Sequence[str] | None = None,
        steal: Sequence[str] = (),
    ) -> list[Lease]:
        """Up to ``max_items`` leases, and 1,000 at most; waits up to ``wait`` s for the first.

        ``lanes`` restricts it; those in ``steal`` are tried when none of ``lanes`` has anything.
        """
        wanted = check_count(max_items, "max_items")
        patience = math.inf if wait == math.inf else check_duration(wait, "wait")
        selection = read_selection(lanes, steal)
        return [] if wanted == 0 else await self.lease_selected(wanted, patience, selection)

    async def lease_selected(
        self, want: int, wait: float, selection: Selection, *, until_drained: bool = False
    ) -> list[Lease]:
        session = self.session_at_hand() or await self.open_session()
        patience = 0.0 if self.is_shut else wait
        return await session.lease(want, patience, selection, until_drained=until_drained)

    def leases(
        self,
        prefetch: int = 1,
        until: Until = "closed",
        lanes: Sequence[str] | None = None,
        steal: Sequence[str] = (),
    ) -> LeaseStream:
        """Leases one after another; ends when the queue is shut down, or is ``"drained"``."""
        return LeaseStream(self, prefetch, until, read_selection(lanes, steal))

    async def dequeue(self, max_items: int = 1) -> list[Any]:
        """Take up to 1,000 items out for good, at most once each; a lease survives a crash."""
        return await take_out(await self.lease(max_items), self._give_back)

    def _give_back(self, leases: Sequence[Lease]) -> None:
        if self._session is not None:
            self._session.client.return_leases(leases)

    # --- looking -------------------------------------------------------------------------------

    async def size(self) -> int:
        return (await self.stats()).size

    async def stats(self) -> QueueStats:
        return await self._ask(self._engine.stats)

    async def admits_more(self) -> bool:
        """Whether a request with a new key may still enter: ``max_keyed``."""
        await self.open_session()
        most = int(self._stored["max_keyed"])
        return most == 0 or (await self.stats()).keyed < most

    async def snapshot(self) -> dict[str, Any]:
        stats = await self.stats()
        return {
            "depth": stats.size,
            "ready": stats.ready,
            "scheduled": stats.delayed,
            "shutdown": self.is_shut,
            "redis_active": isinstance(self._store, ScriptHost),
        }

    async def peek(self, max_items: int = 1) -> list[Any]:
        """The next items in lease order, as if every lane were open; 1,000 at most, or 16 MiB."""
        wanted = min(check_count(max_items, "max_items"), STEP)
        raw = await self._ask(lambda: self._engine.peek(wanted)) if wanted else []
        return [item for item in map(self._readable, raw) if item is not _UNREADABLE]

    async def checkpoint(self, name: str) -> Any:
        """A saved checkpoint, ``None`` if there is none."""
        names = read_lanes([name])
        (raw,) = await self._ask(lambda: self._engine.checkpoints(names))
        return None if raw is None else decode_value(raw)

    async def swap_checkpoint(self, name: str, expected: Any, value: Any) -> bool:
        """Save a checkpoint if the one before is as expected; ``None`` stands for none."""
        (at,) = read_lanes([name])
        old = None if expected is None else read_checkpoint({name: expected})[at]
        new = None if value is None else read_checkpoint({name: value})[at]
        return await self._ask(lambda: self._engine.swap(at, old, new))

    async def results(self, after: int = 0, limit: int = STEP) -> list[tuple[int, Any]]:
        """Results of completed requests and their numbers, from 1 on; 1,000 at most, or 16 MiB."""
        wanted = min(check_count(limit, "limit"), STEP)
        behind = check_count(after, "after")
        found = await self._ask(lambda: self._engine.results(behind, wanted)) if wanted else []
        return [(number, decode_value(raw)) for number, raw in found]

    async def trim_results(self, upto: int) -> None:
        """Drop results up to this number, once they are safe elsewhere."""
        await self.open_session()
        await self._engine.trim_results(check_count(upto, "upto"), self._insist)

    # --- dead letters --------------------------------------------------------------------------

    async def dead_letters(self, page_size: int = STEP) -> AsyncIterator[DeadLetter]:
        """Buried requests, oldest first."""
        await self.open_session()
        size = max(1, min(check_count(page_size, "page_size"), STEP))
        async for page in dead_letters.pages(self._engine, self._options.op_timeout, size):
            for dead in page:
                yield dead_letters.read_dead_letter(dead, self._serializer)

    async def requeue(self, ids: Iterable[str] | None = None) -> int:
        """Make dead letters ready again, all of them without ids; their history is kept."""
        client = (await self.open_session()).client
        wanted = None if ids is None else {identity.decode() for identity in read_ids(ids)}
        # Those that fail again meanwhile come after those that there were.
        there = (await self.stats()).dead
        return await dead_letters.requeue(client, self._serializer, wanted, there)

    async def purge_dead(self, older_than: float = 0.0) -> int:
        """Drop dead letters that were buried at least ``older_than`` seconds ago."""
        age = microseconds(check_duration(older_than, "older_than"))
        return await slices.purge((await self.open_session()).client, age)

    # --- lanes, cancelling, clearing -----------------------------------------------------------

    async def shut(self, lane: str, duration: float) -> None:
        """Shut a lane for at least so long. What was prefetched of it is given back."""
        change = shut_for(lane, duration)
        (await self.open_session()).drop_lane(lane)
        await self._change(change)

    async def reopen(self, lane: str) -> None:
        """Open a lane at once, whatever shut it."""
        await self._change(reopened(lane))

    async def limit(self, lane: str, most: int | None) -> None:
        """How many of a lane may be in flight; ``None`` for as many as of any. Its pace stays."""
        await self._change(limited(lane, most))

    async def pace(
        self,
        lane: str,
        *,
        interval: float | None = None,
        burst: int | None = None,
        limit: int | None = None,
    ) -> None:
        """Give a lane an interval, burst and limit of its own; ``None`` means the queue's."""
        await self._change(paced(lane, interval, burst, limit))

    async def _change(self, change: LaneChange) -> None:
        ask = (await self.open_session()).client.ask
        await ask("change_lanes", lambda op: self._engine.change_lanes(op, [change]))

    async def cancel(self, ids: Iterable[str], *, forget: bool = False) -> int:
        """Drop requests by id: those that wait at once, those in flight at their next move.

        ``forget`` forgets their keys too, so that they may come again.
        """
        wanted = read_ids(ids)
        client = (await self.open_session()).client
        if not wanted:
            return 0
        cancel = self._engine.cancel
        return await client.walk("cancel", lambda op, each: cancel(op, wanted, forget, each))

    async def clear(self) -> int:
        """Drop all that waits, and all seen keys; how many went. Leases go on."""
        return await slices.clear((await self.open_session()).client)

    async def forget(self) -> None:
        """Close, and drop all there is of the run. It may begin anew; who waits goes without."""
        await self._let_open()
        await self.open_session()
        stopped = self._retired()
        for session in stopped:
            await session.stop()
        await self._engine.forget(self._insist)
        self._leaving.difference_update(stopped)
        # Who was quick enough to open it meanwhile has opened what is gone.
        with suppress(StoreLost):
            await self._leave()

    async def recount(self) -> Mapping[str, tuple[int, int]]:
        """Count again what is only derived; what was wrong, as (stored, true), is mended."""
        return await self._ask(self._engine.recount)

    async def sweep(self) -> None:
        """Beat once, and take up at once what consumers that are surely dead were holding."""
        await (await self.open_session()).sweep()

    # --- opening and closing -------------------------------------------------------------------

    async def shutdown(self) -> None:
        """Take nothing new, and wait for nothing: leases end once nothing is ready."""
        self.is_shut = True
        if self._session is not None:
            self._session.shut()

    async def close(self) -> None:
        """Give back what is leased. The store stays open, and the queue may be used again."""
        await self._let_open()
        await self._leave()

    async def _leave(self) -> None:
        for leaving in self._retired():
            try:
                await leaving.close()
            except StoreLost:
                self._leaving.discard(leaving)
                raise
            self._leaving.discard(leaving)

    def _retired(self) -> list[Session]:
        if self._session is not None:
            self._leaving.add(self._session)
        self._session = None
        self._leaving = {leaving for leaving in self._leaving if leaving.client.is_here()}
        return list(self._leaving)

    async def __aenter__(self) -> Self:
        await self.open_session()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def session_at_hand(self) -> Session | None:
        session = self._session
        return session if session is not None and session.client.is_here() else None

    async def open_session(self) -> Session:
        return self.session_at_hand() or await self._opening.run(self._open_first)

    async def _let_open(self) -> None:
        """What is being opened must be open to be closed. If that fails, its caller is told."""
        with suppress(DataFetcherError):
            while self._opening.anybody:
                await self.open_session()
                await asyncio.sleep(0)

    async def _open_first(self) -> Session:
        # Who waited for one who gave up may come when somebody else has opened it.
        return self.session_at_hand() or self._begin(await self._open_store())

    async def _open_store(self) -> Mapping[str, str]:
        offered = self._options.shared()
        updates = self._update and not self._has_updated
        named = self._options.shared_and_given() if updates else []
        stored = await self._insist(lambda: self._engine.open(offered, named))
        # Who is merely used again does not contradict those who have changed it since.
        if not self._has_updated:
            agree(stored, self._options)
            self._has_updated = self._update
        return stored

    def _begin(self, stored: Mapping[str, str]) -> Session:
        self._stored = stored
        client = Client(
            self._engine,
            namespace=self._namespace,
            options=self._options,
            max_attempts=int(stored["max_attempts"]),
            serializer=self._serializer,
            clock=self._clock,
            tell=self._tell,
        )
        self._session = Session(client)
        if self.is_shut:
            self._session.shut()
        return self._session

    async def _ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        await self.open_session()
        return await self._insist(ask)

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await insist(ask, self._options.op_timeout)

    def _readable(self, raw: bytes) -> Any:
        try:
            return read_item(decode(raw), self._serializer)
        except Exception:  # noqa: BLE001 - a lease of it would bury it, whatever its serializer says
            return _UNREADABLE

    def __repr__(self) -> str:
        state = "shut" if self.is_shut else "closed" if self._session is None else "open"
        return f"KVStoreQueue({self._namespace!r} on {self._store!r}, {state})"
