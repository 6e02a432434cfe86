"""A step reads, and answers, little more than ``STEP_BYTES``, however large the requests are."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from data_fetcher_core import Entry, Priority
from data_fetcher_core.fetcher.exporting import Exporter
from data_fetcher_core.fetcher.pausing import Pauses
from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.queue import (
    KVStoreQueue,
    leasing,
    scripted_engine,
    scripts,
    tending,
    transactional_engine,
)
from data_fetcher_core.queue.engine import MOST_READ, STEP, Position
from data_fetcher_core.queue.step import Step
from data_fetcher_core.testing import ManualClock
from tests.conftest import MakeQueue
from tests.harness import accounted, client_of, items, letters

# What stands for STEP_BYTES here.
BOUND = 64 * 2**10
# Lanes, counters and names: nothing that grows with the requests.
SMALL = 16 * 2**10
# Four of them are just too many.
QUARTER = "x" * (BOUND // 4)
WHOLE = "x" * BOUND
# Puts up a counter in the store by all that a script reads.
COUNTING = """
local redis = (function()
  local real = redis
  local function size_of(found)
    if type(found) ~= 'table' then return type(found) == 'string' and #found or 0 end
    local size = 0
    for _, one in ipairs(found) do size = size + size_of(one) end
    return size
  end
  local function call(...)
    local found = real.call(...)
    real.call('INCRBY', 'read', size_of(found))
    return found
  end
  return setmetatable({call = call}, {__index = real})
end)()
"""
ReadSince = Callable[[], int]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The bound is low, in Python and in Lua."""
    with monkeypatch.context() as patch:
        patch.setattr(leasing, "STEP_BYTES", BOUND)
        patch.setattr(tending, "STEP_BYTES", BOUND)
        patch.setattr(scripts, "CONSTANTS", {**scripts.CONSTANTS, "STEP_BYTES": BOUND})
        _load_again()
        yield
    _load_again()


def _load_again() -> None:
    scripts.load_script.cache_clear()
    scripts.load_scripts.cache_clear()


class _Counted:
    """A transaction that counts the bytes of the values it reads."""

    def __init__(self, tx: Transaction, sizes: list[int]) -> None:
        self._tx = tx
        self._sizes = sizes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def range(
        self, start: bytes, end: bytes, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        found = self._tx.range(start, end, limit)
        self._sizes += [len(value) for _, value in found]
        return found


@pytest.fixture
def read_since(
    store_kind: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> ReadSince:
    """How many bytes steps have read since it was asked last."""
    if store_kind == "redis":
        loaded = scripts.load_scripts()
        counting = {
            verb: replace(one, source=COUNTING + one.source) for verb, one in loaded.items()
        }
        monkeypatch.setattr(scripted_engine, "load_scripts", lambda: counting)
        server = request.getfixturevalue("redis_server")

        def taken_from_redis() -> int:
            with server.client() as client:
                return int(client.getset("read", 0) or 0)

        return taken_from_redis
    sizes: list[int] = []

    def counted(tx: Any, *rest: Any) -> Step:
        return Step(_Counted(tx, sizes), *rest)

    monkeypatch.setattr(transactional_engine, "Step", counted)

    def taken() -> int:
        total = sum(sizes)
        sizes.clear()
        return total

    return taken


@pytest.fixture
def queue(read_since: ReadSince, make_queue: MakeQueue) -> KVStoreQueue:
    """Made after the steps were made small and are counted."""
    return make_queue(compress_over=0)


# --- leasing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 30])
async def test_a_lease_reads_little_more_than_it_gives(
    queue: KVStoreQueue, read_since: ReadSince, lanes: int
) -> None:
    size = BOUND // 20
    wanted = [Priority.NORMAL, Priority.HIGH]
    for priority, _ in itertools.product(wanted, range(600 // lanes)):
        await queue.enqueue(
            Entry("x" * size, lane=f"lane {n}", priority=priority) for n in range(lanes)
        )
    read_since()
    leases = await queue.lease(STEP)
    assert len(leases) == 20
    opened = 2 * min(lanes, 20)
    assert read_since() <= 2 * (20 + opened) * size + SMALL


async def test_nothing_is_passed_over_however_many_are_read_at_once(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    """What becomes due in the step that leases it comes behind all that was ready."""
    for ready in (0, 1, 2, 3, 4, 5, 7, 8, 9, 17):
        await queue.enqueue(range(ready))
        await queue.enqueue(range(ready, ready + 3), delay=1.0)
        clock.advance(1.0)
        leases = await queue.lease(STEP)
        assert items(leases) == list(range(ready + 3))
        for lease in leases:
            await lease.complete()
    await accounted(queue)


async def test_more_than_are_read_at_once_come_in_order(queue: KVStoreQueue) -> None:
    many = 3 * MOST_READ
    await queue.enqueue(range(many))
    assert await queue.peek(many) == list(range(many))
    assert items(await queue.lease(many)) == list(range(many))


# --- looking -------------------------------------------------------------------------------------


async def test_a_look_ahead_is_bounded(queue: KVStoreQueue, read_since: ReadSince) -> None:
    for n in range(100):
        await queue.enqueue(Entry(f"{n}{lane}{QUARTER}", lane=lane) for lane in "ab")
    read_since()
    assert _beginnings(await queue.peek(STEP)) == ["0a", "0b", "1a", "1b"]
    assert read_since() <= 2 * (4 + 2) * len(QUARTER) + SMALL
    assert _beginnings(await queue.peek(3)) == ["0a", "0b", "1a"]


async def test_many_lanes_are_not_all_read_to_look_ahead(
    queue: KVStoreQueue, read_since: ReadSince
) -> None:
    await queue.enqueue(Entry(f"{n}{QUARTER}", lane=f"lane {n}") for n in range(100))
    read_since()
    assert _beginnings(await queue.peek(STEP)) == ["0", "1", "2", "3"]
    assert read_since() <= 5 * len(QUARTER) + SMALL


async def _bury(queue: KVStoreQueue, number: int, body: str) -> None:
    await queue.enqueue(f"{n}{body}" for n in range(number))
    while leases := await queue.lease(STEP):
        for lease in leases:
            await lease.bury("no")


async def test_a_page_of_dead_letters_is_bounded(
    queue: KVStoreQueue, read_since: ReadSince
) -> None:
    """All were buried at one instant: those that were given before are not read once more."""
    await _bury(queue, 40, QUARTER)
    engine, seen = (await client_of(queue)).engine, 0
    after: Position | None = None
    read_since()
    while page := await engine.dead(after, STEP):
        assert len(page) == 4
        assert read_since() <= 14 * len(QUARTER) + SMALL
        seen, after = seen + len(page), page[-1].position
    assert seen == 40
    assert len(await engine.dead(None, 3)) == 3


async def test_all_dead_letters_are_told_and_made_ready(queue: KVStoreQueue) -> None:
    await _bury(queue, 10, QUARTER)
    assert _beginnings([letter.item for letter in await letters(queue)]) == _numbers(10)
    assert await queue.requeue() == 10
    assert (await accounted(queue)).ready == 10


async def test_dead_letters_of_several_instants(queue: KVStoreQueue, clock: ManualClock) -> None:
    for _ in range(3):
        await _bury(queue, 5, QUARTER)
        clock.advance(1.0)
    found = [letter.item for letter in await letters(queue)]
    assert _beginnings(found) == 3 * _numbers(5)


async def test_a_page_of_results_is_bounded(queue: KVStoreQueue, read_since: ReadSince) -> None:
    await queue.enqueue(range(60))
    for lease in await queue.lease(60):
        await lease.complete(result=f"{lease.item}{QUARTER}")
    found: list[str] = []
    read_since()
    while page := await queue.results(after=len(found)):
        assert [number for number, _ in page] == [len(found) + n for n in range(1, 5)]
        assert read_since() <= 2 * 4 * len(QUARTER) + SMALL
        found += [result for _, result in page]
    assert _beginnings(found) == _numbers(60)
    assert len(await queue.results(limit=3)) == 3


async def test_what_is_too_large_for_a_step_comes_alone(queue: KVStoreQueue) -> None:
    await queue.enqueue(f"{n}{WHOLE}" for n in range(3))
    assert _beginnings(await queue.peek(STEP)) == ["0"]
    for n in range(3):
        (lease,) = await queue.lease(STEP)
        await lease.complete(result=f"{n}{WHOLE}")
    assert _beginnings([result for _, result in await queue.results()]) == ["0"]
    await _bury(queue, 3, WHOLE)
    assert len(await (await client_of(queue)).engine.dead(None, STEP)) == 1
    assert _beginnings([letter.item for letter in await letters(queue)]) == _numbers(3)


def _numbers(upto: int) -> list[str]:
    return [str(n) for n in range(upto)]


def _beginnings(found: list[str]) -> list[str]:
    return [item.rstrip("x") for item in found]


# --- the index -----------------------------------------------------------------------------------


class Parts:
    """Like an index in an object store: parts of a thousand lines, and the rest at the end."""

    def __init__(self) -> None:
        self.lines: dict[int, Any] = {}

    async def append_index(self, entries: list[tuple[int, Any]]) -> int:
        return self._write(entries[: len(entries) // STEP * STEP])

    async def finish_index(self, entries: list[tuple[int, Any]]) -> int:
        return self._write(entries)

    def _write(self, entries: list[tuple[int, Any]]) -> int:
        self.lines.update(entries)
        return max(self.lines, default=0)


async def test_an_index_gets_all_results_in_whole_parts(
    queue: KVStoreQueue, clock: ManualClock
) -> None:
    """Results come in fewer than were asked for: that is not the end of them."""
    await queue.enqueue(range(2_500))
    while leases := await queue.lease(STEP):
        told = [{"page": lease.item, "title": "x" * 200} for lease in leases]
        await asyncio.gather(
            *(lease.complete(result=line) for lease, line in zip(leases, told, strict=True))
        )
    parts = Parts()
    pauses = Pauses("fetch:test", clock, lambda _: None)
    await Exporter(queue, parts, clock, pauses).finish()  # type: ignore[arg-type]
    assert sorted(line["page"] for line in parts.lines.values()) == list(range(2_500))
