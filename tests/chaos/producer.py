"""A process that brings requests, to be killed: it goes on where its ledger ends."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_fetcher_core.core import Entry
from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.events import ConsumerReaped, Event
from data_fetcher_core.queue import KVStoreQueue
from tests.chaos.cancelling import Fate
from tests.chaos.ledger import Call, Pen, Reader
from tests.chaos.names import BLOCK, children_of, is_poison, make_name, number_of
from tests.chaos.worker import open_chaos, until_open

_PAUSE = 0.05
_LANES = 7


@dataclass(frozen=True)
class ProducerOrders:
    url: str
    ledger: str
    process: str
    number: int
    # How many requests are to be accepted, children included.
    share: int
    # How many a second.
    rate: float
    options: dict[str, Any]
    seed: int
    shortest_work: float = 0.005
    longest_work: float = 0.05
    batch: int = 10
    cancels: float = 0.0
    # The share of requests that bring a child.
    children: float = 0.25
    # One of so many is poison; 0 for none.
    poison_every: int = 0


@dataclass
class Standing:
    """How far a producer is."""

    next_number: int = 0
    accepted: int = 0
    # Batches of unknown fate that may be brought again: their keys keep them from entering twice.
    doubtful: tuple[tuple[str, ...], ...] = ()


def is_keyed(name: str) -> bool:
    """Of every two thousand, the first has keys."""
    return number_of(name) // BLOCK % 2 == 0


def standing(calls: Sequence[Call]) -> Standing:
    """Where those stopped who came before."""
    sent: set[str] = set()
    batches = [call.names for call in calls if call.op == "enqueue"]
    for call in calls:
        if call.outcome == "ok":
            sent.update(call.names)
    doubtful = {names for names in batches if is_keyed(names[0]) and not sent.issuperset(names)}
    last = max((number_of(name) for names in batches for name in names), default=-1)
    return Standing(last + 1, sum(map(weight, sent)), tuple(sorted(doubtful)))


def weight(name: str) -> int:
    """How many requests will come of it."""
    return 1 + len(children_of(name))


class Producer:
    def __init__(self, orders: ProducerOrders) -> None:
        self._orders = orders
        self._dice = random.Random(orders.seed)
        self._fate = Fate(orders.cancels, self._dice)
        self._pen = Pen(Path(orders.ledger), orders.process)
        self._standing = _read_standing(Path(orders.ledger))

    async def run(self) -> int:
        queue = open_chaos(self._orders.url, self._orders.options, self._hear)
        await until_open(queue)
        try:
            await self._bring_all(queue)
        finally:
            with suppress(StoreUnavailable):
                await queue.close()
        return 0

    def _hear(self, event: Event) -> None:
        """It takes up what the dead held, like everybody."""
        if isinstance(event, ConsumerReaped):
            self._pen.note("reaped", event.consumer)

    async def _bring_all(self, queue: KVStoreQueue) -> None:
        for names in self._standing.doubtful:
            await self._bring(queue, names)
        begun, before = time.monotonic(), self._standing.accepted
        while self._standing.accepted < self._orders.share:
            await self._bring(queue, self._next_batch())
            due = begun + (self._standing.accepted - before) / self._orders.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _next_batch(self) -> list[str]:
        """Numbers of one thousand, so that all of them have keys or none has."""
        first = self._standing.next_number
        most = BLOCK - first % BLOCK
        count = min(self._dice.randint(1, self._orders.batch), most)
        self._standing.next_number += count
        return [self._name(first + n) for n in range(count)]

    def _name(self, number: int) -> str:
        every = self._orders.poison_every
        poison = every > 0 and number % every == every // 8
        children = int(not poison and self._dice.random() < self._orders.children)
        return make_name(self._orders.number, number, children=children, poison=poison)

    async def _bring(self, queue: KVStoreQueue, names: Sequence[str]) -> None:
        """Until it is known that they are in; without keys, no more than once if in doubt."""
        entries = [self._entry(name) for name in names]
        while True:
            call = self._pen.begin("enqueue", names)
            outcome, _ = await self._fate.run(queue.enqueue(entries))
            self._pen.end(call, outcome)
            if outcome == "ok":
                self._standing.accepted += sum(map(weight, names))
                return
            if outcome != "full" and not is_keyed(names[0]):
                return
            await asyncio.sleep(_PAUSE)

    def _entry(self, name: str) -> Entry:
        orders, number = self._orders, number_of(name)
        seconds = self._dice.uniform(orders.shortest_work, orders.longest_work)
        return Entry(
            [name, seconds],
            id=name,
            key=name if is_keyed(name) else None,
            lane=f"lane{number % _LANES}",
            delay=self._dice.uniform(0, 0.5) if number % 10 == 0 and not is_poison(name) else None,
        )


def _read_standing(ledger: Path) -> Standing:
    reader = Reader()
    calls = reader.news([ledger]).calls
    return standing([*calls, *reader.unfinished()])


async def main(orders: Mapping[str, Any]) -> int:
    return await Producer(ProducerOrders(**orders)).run()
