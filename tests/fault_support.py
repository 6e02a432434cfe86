"""What the fault tests share: queues by URL, and an account that does not trust the queue's own."""

from __future__ import annotations

import asyncio
import math
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import pytest

from data_fetcher_core import open_queue
from data_fetcher_core.clock import SYSTEM_CLOCK, Clock
from data_fetcher_core.core import Entry, Priority
from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.events import Subscriber
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue, Lease, QueueOptions
from data_fetcher_core.testing import ManualClock
from tests.evidence import Evidence
from tests.harness import accounted, crash, letters, settled
from tests.servers import RedisServer

_MOST_SECONDS = 120


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """No test of a module that imports this runs on for ever, whatever it waits for."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"the test was still running after {_MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


async def calmest(measure: Callable[[], Awaitable[float]], enough: float) -> float:
    """Of at most three rounds: a busy machine makes them slower, nothing makes them faster."""
    best = math.inf
    for _ in range(3):
        if best > enough:
            best = min(best, await measure())
    return best


# Whoever gets one of these does not know whether it happened.
_DOUBT = (StoreUnavailable, asyncio.CancelledError)


def open_run(
    store: str | KeyValueStore,
    run_id: str = "faults",
    *,
    clock: Clock = SYSTEM_CLOCK,
    subscriber: Subscriber = lambda _: None,
    **options: Any,
) -> KVStoreQueue:
    """A queue to be used with ``async with``; the store of a URL is closed with it."""
    return open_queue(
        store,
        run_id=run_id,
        serializer=JSONSerializer(),
        options=QueueOptions(**options),
        clock=clock,
        subscriber=subscriber,
    )


class Account(NamedTuple):
    """What does not add up: nothing, if all is well."""

    lost: frozenset[str]
    twice: frozenset[str]
    appeared: frozenset[str]
    not_as_told: frozenset[str]
    """Done although nobody was told so, or the other way round."""
    stuck: int

    def show(self, shows: Evidence, fault: str) -> None:
        shows(fault, "lost", len(self.lost), exactly=0)
        shows(fault, "done twice", len(self.twice), exactly=0)
        shows(fault, "appeared from nowhere", len(self.appeared), exactly=0)
        assert not any(self), self


class Ledger:
    """Items are names, each sent once. A completion leaves its name among the results."""

    def __init__(self) -> None:
        self.sent: set[str] = set()
        self.perhaps_sent: set[str] = set()
        self.completed: set[str] = set()
        self.perhaps_completed: set[str] = set()
        self.cancelled: set[str] = set()

    async def enqueue(self, queue: KVStoreQueue, names: Iterable[str], **how: Any) -> None:
        wanted = list(names)
        try:
            await queue.enqueue([Entry(name, id=name, **how) for name in wanted])
        except _DOUBT:
            self.perhaps_sent.update(wanted)
            raise
        self.sent.update(wanted)

    async def complete(self, lease: Lease, children: Iterable[str] = ()) -> None:
        born = list(children)
        entries = [Entry(name, id=name, lane=lease.lane) for name in born]
        try:
            await lease.complete(entries, result=lease.item)
        except _DOUBT:
            self.perhaps_completed.add(lease.item)
            self.perhaps_sent.update(born)
            raise
        self.completed.add(lease.item)
        self.sent.update(born)

    async def balance(self, queue: KVStoreQueue) -> None:
        """Empty the queue, and see that all that went in came out, once, and nothing else did."""
        account = await self.account(queue)
        assert not any(account), account

    async def account(self, queue: KVStoreQueue) -> Account:
        """Empty the queue, and compare what came out with what went in."""
        await settled(queue)
        await accounted(queue)
        done = Counter(await results(queue))
        may_be_done = self.completed | self.perhaps_completed
        dead = Counter(letter.id for letter in await letters(queue))
        left = Counter(await drain(queue))
        found = done + dead + left + Counter(self.cancelled)
        stats = await accounted(queue)
        return Account(
            lost=frozenset(self.sent - set(found)),
            twice=frozenset(name for name in found if found[name] > 1),
            appeared=frozenset(set(found) - self.sent - self.perhaps_sent),
            not_as_told=frozenset((self.completed - set(done)) | (set(done) - may_be_done)),
            stuck=stats.ready + stats.delayed + stats.leased,
        )


async def results(queue: KVStoreQueue) -> list[Any]:
    found: list[tuple[int, Any]] = []
    while page := await queue.results(after=found[-1][0] if found else 0):
        found += page
    return [result for _, result in found]


async def drain(queue: KVStoreQueue) -> list[Any]:
    """Complete whatever can be leased, now and later; what cannot be read is no part of it."""
    drained: list[Any] = []
    async with asyncio.timeout(30):
        while (await queue.stats()).size:
            leases = await queue.lease(1000, wait=0.2)
            await asyncio.gather(*(lease.complete() for lease in leases))
            drained += [lease.item for lease in leases]
            await settled(queue)
    return drained


# --- looking into a server -----------------------------------------------------------------------

_READ = {
    b"string": lambda client, key: client.get(key),
    b"list": lambda client, key: client.lrange(key, 0, -1),
    b"hash": lambda client, key: client.hgetall(key),
    b"set": lambda client, key: client.smembers(key),
    b"zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
}


class Picture:
    """Everything a server holds: to compare, and to put back."""

    def __init__(self, server: RedisServer, *, to_restore: bool = True) -> None:
        with server.client() as client:
            self.keys: list[bytes] = sorted(client.keys("*"))
            kinds = _all(client, lambda steps, key: steps.type(key), self.keys)
            self.contents = _all(
                client, lambda steps, key: _READ[kinds[key]](steps, key), self.keys
            )
            dump = self.keys if to_restore else []
            self._dumps = _all(client, lambda steps, key: steps.dump(key), dump)

    def restore(self, server: RedisServer, keys: Sequence[bytes] | None = None) -> None:
        """Everything as it was, or these keys alone."""

        def put_back(steps: Any, key: bytes) -> None:
            steps.restore(key, 0, self._dumps[key], replace=True)

        with server.client() as client:
            if keys is None:
                client.flushall()
            _all(client, put_back, self.keys if keys is None else keys)

    def changed(self, server: RedisServer) -> list[bytes]:
        now = Picture(server, to_restore=False).contents
        keys = now.keys() | self.contents.keys()
        return [key for key in keys if now.get(key) != self.contents.get(key)]


def _all(client: Any, ask: Callable[[Any, bytes], Any], keys: Sequence[bytes]) -> dict[bytes, Any]:
    steps = client.pipeline(transaction=False)
    for key in keys:
        ask(steps, key)
    return dict(zip(keys, steps.execute(), strict=True))


# --- every verb of a queue -----------------------------------------------------------------------


class Act:
    """A queue with something of everything in it, two leases, and one verb to do."""

    def __init__(self, store: str | KeyValueStore, run_id: str) -> None:
        self.clock = ManualClock()
        self._place = store, run_id
        self.queue = self._open()
        self.held: list[Lease] = []
        self.answer: Any = None

    def _open(self) -> KVStoreQueue:
        return open_run(*self._place, clock=self.clock, op_timeout=3.0)

    async def __aenter__(self) -> Self:
        await self.queue.__aenter__()
        await self._prepare()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.queue.__aexit__(*exc)

    async def outlive_another(self) -> None:
        """Another consumer of the run dies, and this one takes up what it held."""
        async with self._open() as dying:
            leases = await dying.lease(2)
            await crash(dying)
        assert len(leases) == 2
        await self.queue.sweep()
        self.clock.advance(30.0)
        await self.queue.sweep()

    async def lease(self, *args: Any, **how: Any) -> list[str]:
        leases = await self.queue.lease(*args, **how)
        self.held += leases
        return [lease.id for lease in leases]

    async def _prepare(self) -> None:
        queue = self.queue
        names = [Entry(f"{n}", id=f"{n}", key=f"{n}", lane=f"lane{n % 2}") for n in range(8)]
        await queue.enqueue(names, checkpoint={"cursor": 1})
        await queue.enqueue([Entry("late", id="late")], delay=60.0)
        self.held = await queue.lease(4)
        await self.held.pop().bury("no good")
        await self.held.pop().complete(result="done")

    async def view(self) -> dict[str, Any]:
        """All that can be seen of the queue, but for what is random."""
        stats = await accounted(self.queue)
        return {
            "answer": self.answer,
            "stats": stats,
            "order": await self.queue.peek(100),
            "dead": [(d.id, d.reason, d.attempts, d.deaths) for d in await letters(self.queue)],
            "cursor": await self.queue.checkpoint("cursor"),
            "results": await results(self.queue),
        }

    async def last_view(self) -> dict[str, Any]:
        """The same, and what can be leased: lanes that are shut show only then."""
        return {**await self.view(), "leased": await self.lease(100)}


def _many() -> Iterator[Entry]:
    return (Entry(n, id=f"one of many {n}") for n in range(2_100))


CHILDREN = [Entry(name, id=name, key=name) for name in ("child", "other child", "1")]
Verb = Callable[[Act], Awaitable[Any]]
VERBS: dict[str, Verb] = {
    "enqueue": lambda act: act.queue.enqueue([Entry("new", id="new"), *CHILDREN]),
    "enqueue with checkpoint": lambda act: act.queue.enqueue(CHILDREN, checkpoint={"cursor": 2}),
    "enqueue for later": lambda act: act.queue.enqueue([Entry("new", id="new")], delay=9.0),
    "enqueue in three steps": lambda act: act.queue.enqueue(_many()),
    "lease": lambda act: act.lease(3),
    "lease of a lane": lambda act: act.lease(3, lanes=["lane1"]),
    "complete": lambda act: act.held[0].complete(),
    "complete with all": lambda act: act.held[0].complete(CHILDREN, {"cursor": 3}, "found"),
    "release": lambda act: act.held[0].release(error="again", priority=Priority.LOW),
    "release for later": lambda act: act.held[0].release(delay=9.0, error="later"),
    "bury": lambda act: act.held[0].bury("no good either"),
    "give back": lambda act: act.held[0].give_back(),
    "dequeue": lambda act: act.queue.dequeue(2),
    "sweep": lambda act: act.queue.sweep(),
    "reap": lambda act: act.outlive_another(),
    "requeue": lambda act: act.queue.requeue(),
    "purge": lambda act: act.queue.purge_dead(),
    "cancel": lambda act: act.queue.cancel(["6", "late", act.held[0].id]),
    "cancel and forget": lambda act: act.queue.cancel(["6", "7"], forget=True),
    "shut": lambda act: act.queue.shut("lane1", 60.0),
    "reopen": lambda act: act.queue.reopen("lane1"),
    "pace": lambda act: act.queue.pace("lane1", interval=60.0),
    "clear": lambda act: act.queue.clear(),
    "close": lambda act: act.queue.close(),
    "forget": lambda act: act.queue.forget(),
    "trim results": lambda act: act.queue.trim_results(1),
    "look": lambda act: act.queue.stats(),
}
