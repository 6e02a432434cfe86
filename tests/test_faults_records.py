"""A bit of a stored request is turned: it is told, kept as it is found, and blocks nobody."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from data_fetcher_core.core import DeathReason, Entry
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.redis import RedisStore
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.kv_store.transactional import TransactionalStore
from data_fetcher_core.queue import KVStoreQueue, Lease
from data_fetcher_core.queue.ordered_keys import OrderedKeys
from data_fetcher_core.queue.records import READY_AT_OFFSET, decode, is_whole
from data_fetcher_core.testing import ManualClock
from tests.evidence import Evidence
from tests.fault_support import bounded, open_run
from tests.harness import accounted, letters, outlive, settled
from tests.servers import RedisServer

__all__ = ["bounded"]

Cell = tuple[bytes, bytes]
LANE = "lane"
EXPIRES_AT = range(16, 24)


class Cells(ABC):
    """The stored requests of a run, as bytes that can be written over."""

    store: KeyValueStore

    @abstractmethod
    async def read(self, place: str) -> list[Cell]:
        """Name and bytes of what is ``ready``, ``delayed`` or ``leased``."""

    @abstractmethod
    async def write(self, place: str, cells: list[Cell]) -> None:
        """Put other bytes under these names."""


class RedisCells(Cells):
    def __init__(self, server: RedisServer) -> None:
        self.store = RedisStore(server.url)
        self._server = server

    async def read(self, place: str) -> list[Cell]:
        with self._server.client() as client:
            if place == "ready":
                key = f"{{fetch:faults}}:ready:3:{LANE}"
                return [(b"%d" % at, raw) for at, raw in enumerate(client.lrange(key, 0, -1))]
            if place == "delayed":
                return [(raw, raw) for raw in client.zrange("{fetch:faults}:delayed", 0, -1)]
            (key,) = client.keys("{fetch:faults}:leased:*")
            return list(client.hgetall(key).items())

    async def write(self, place: str, cells: list[Cell]) -> None:
        with self._server.client() as client:
            steps = client.pipeline(transaction=False)
            for name, raw in cells:
                if place == "ready":
                    steps.lset(f"{{fetch:faults}}:ready:3:{LANE}", int(name), raw)
                elif place == "delayed":
                    key = "{fetch:faults}:delayed"
                    due = client.zscore(key, name)
                    steps.zrem(key, name)
                    steps.zadd(key, {raw: due})
                else:
                    (key,) = client.keys("{fetch:faults}:leased:*")
                    steps.hset(key, name, raw)
            steps.execute()


class OrderedCells(Cells):
    def __init__(self, store: TransactionalStore) -> None:
        self.store: TransactionalStore = store
        keys = OrderedKeys(b"fetch:faults")
        self._families = {
            "ready": keys.ready_lists,
            "delayed": keys.delayed_requests,
            "leased": keys.leases,
        }

    async def read(self, place: str) -> list[Cell]:
        family = self._families[place]
        return await self.store.transact(lambda tx: tx.range(family, family + b"\xff" * 8))

    async def write(self, place: str, cells: list[Cell]) -> None:
        await self.store.transact(lambda tx: tx.put_many(cells))


@pytest.fixture(params=["redis", "sqlite"])
async def cells(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cells]:
    made: Cells
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.flush()
        made = RedisCells(server)
    else:
        made = OrderedCells(SQLiteStore(tmp_path / "run.db", synchronous="NORMAL"))
    yield made
    await made.store.close()


# Names as items: an item that has become another one is told from its id.
NAMES = [f"{n:04}" for n in range(8 * 70 + 20)]


@dataclass(frozen=True)
class Flip:
    """One bit of one cell is turned: of the record in it, or of what comes before."""

    name: str
    at: int
    record: bytes

    @property
    def must_be_found(self) -> bool:
        """Numbers that change with every move are not under the checksum, nor is the priority."""
        return self.at in {0, 1} or self.at == 3 or self.at >= READY_AT_OFFSET + 16


async def _flip_every_bit(cells: Cells, place: str) -> list[Flip]:
    """Each bit of a request, each in another of those that are stored."""
    stored = sorted(await cells.read(place))
    flips, written = [], []
    for number, (cell, raw) in enumerate(stored):
        at, bit = divmod(number, 8)
        if at < len(raw):
            turned = raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]
            start = len(raw) - len(_record(raw))
            flips.append(Flip(decode(_record(raw)).id.decode(), at - start, turned[start:]))
            written.append((cell, turned))
    await cells.write(place, written)
    return flips


def _record(raw: bytes) -> bytes:
    """Without what a place puts before a record."""
    return next(raw[at:] for at in range(len(raw)) if is_whole(raw[at:]))


async def _take_all(queue: KVStoreQueue, *, most: int = 1000) -> set[str]:
    taken: list[str] = []
    async with asyncio.timeout(30):
        while (await queue.stats()).size:
            for lease in await queue.lease(most):
                assert lease.item == lease.id
                taken.append(lease.item)
                await lease.complete()
            await settled(queue)
    assert len(taken) == len(set(taken))
    return set(taken)


async def _check_account(queue: KVStoreQueue, gone: set[str], flips: list[Flip]) -> None:
    """Nobody is missing, and nobody suffers who was not damaged."""
    wrong = await queue.recount()
    # A lane's name that was damaged in a lease is not the one that was counted.
    assert all(name.startswith("in_flight:") for name in wrong), wrong
    stats = await accounted(queue)
    assert stats.leased == 0
    assert len(await letters(queue)) == len(NAMES) - len(gone) == stats.dead
    assert set(NAMES) - gone <= {flip.name for flip in flips}


@pytest.mark.parametrize("place", ["ready", "delayed"])
async def test_a_bit_of_a_request_that_waits(
    cells: Cells, clock: ManualClock, place: str, shows: Evidence
) -> None:
    async with open_run(cells.store, clock=clock) as queue:
        delay = 60.0 if place == "delayed" else 0.0
        await queue.enqueue([Entry(n, id=n, lane=LANE, key=n) for n in NAMES], delay=delay)
        flips = await _flip_every_bit(cells, place)
        clock.advance(delay)
        taken = await _take_all(queue)
        await _check_account(queue, taken, flips)
        found = {_unstamped(letter.raw): letter for letter in await letters(queue)}
        for flip in flips:
            letter = found.get(_unstamped(flip.record))
            if letter is None:
                assert flip.name in taken
                assert not flip.must_be_found, flip
            elif letter.reason is not DeathReason.CORRUPT:
                assert letter.reason is DeathReason.EXPIRED
                assert flip.at in EXPIRES_AT
        shows("F33", f"bits turned, each of another {place} request", len(flips), at_least=300)
        lost = len(NAMES) - len(taken) - (await queue.stats()).dead
        shows("F33", "requests neither taken nor dead", lost, exactly=0)
        corrupt = [letter for letter in found.values() if letter.reason is DeathReason.CORRUPT]
        shows("F33", "corrupt ones kept byte for byte", len(corrupt), at_least=100)


def _unstamped(record: bytes) -> bytes:
    """Without the instant at which it became ready: that is written when a delay is over."""
    return record[:READY_AT_OFFSET] + record[READY_AT_OFFSET + 8 :]


SETTLEMENTS: dict[str, Callable[[Lease], Awaitable[object]]] = {
    "complete": lambda lease: lease.complete(),
    "release": lambda lease: lease.release(error="again"),
    "release for later": lambda lease: lease.release(delay=1.0),
    "bury": lambda lease: lease.bury(),
    "give back": lambda lease: lease.give_back(),
}


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_bit_of_a_request_that_is_settled(
    cells: Cells, clock: ManualClock, settlement: str
) -> None:
    async with open_run(cells.store, clock=clock) as queue:
        await queue.enqueue([Entry(n, id=n, lane=LANE, key=n) for n in NAMES])
        leases = await queue.lease(1000)
        flips = await _flip_every_bit(cells, "leased")
        await asyncio.gather(*(SETTLEMENTS[settlement](lease) for lease in leases))
        clock.advance(1.0)
        if settlement == "complete":
            taken = {lease.item for lease in leases}
        elif settlement == "bury":
            assert len(await letters(queue)) == len(NAMES)
            return
        else:
            taken = await _take_all(queue)
        await _check_account(queue, taken, flips)


@pytest.mark.parametrize("end", ["close", "death"])
async def test_a_bit_of_a_request_whose_holder_ends(
    cells: Cells, clock: ManualClock, end: str
) -> None:
    async with (
        open_run(cells.store, clock=clock) as ending,
        open_run(cells.store, clock=clock) as queue,
    ):
        await ending.enqueue([Entry(n, id=n, lane=LANE, key=n) for n in NAMES])
        leases = await ending.lease(1000)
        flips = await _flip_every_bit(cells, "leased")
        if end == "close":
            await ending.close()
        else:
            await outlive(ending, queue, clock)
        assert len(leases) == len(NAMES)
        taken = await _take_all(queue)
        await _check_account(queue, taken, flips)
