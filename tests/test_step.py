"""One step over an ordered store: what it reads, what it writes, what it leaves behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from data_fetcher_core import Entry, Priority
from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import KVStoreQueue, tending
from data_fetcher_core.queue.engine import STEP, Dead, Position, Reason
from data_fetcher_core.queue.lane_state import LaneDefaults, QueueState, decode_state
from data_fetcher_core.queue.ordered_keys import OrderedKeys
from data_fetcher_core.queue.records import Record
from data_fetcher_core.queue.step import UNREADABLE, Step, read_dead
from data_fetcher_core.testing import ManualClock
from tests.fault_support import open_run
from tests.harness import accounted, everything, items

T = TypeVar("T")
HOUR, MANY = 3600.0, STEP + 10


class Watched(MemoryStore):
    """Notes how many rows each look along the keys has brought."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    async def transact(self, fn: Callable[[Transaction], T], *, urgent: bool = False) -> T:
        return await super().transact(lambda tx: fn(_Watched(tx, self.rows)), urgent=urgent)


class _Watched:
    def __init__(self, tx: Transaction, rows: list[int]) -> None:
        self.get_many = tx.get_many
        self.put_many = tx.put_many
        self.delete_many = tx.delete_many
        self._tx = tx
        self._rows = rows

    def range(
        self, start: bytes, end: bytes, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        found = self._tx.range(start, end, limit)
        self._rows.append(len(found))
        return found


# --- what it reads -----------------------------------------------------------------------------


async def test_a_lease_reads_little_more_than_it_hands_out(clock: ManualClock) -> None:
    """However many lanes wait, are parked or delayed, and however much is held."""
    store, many = Watched(), 300
    async with open_run(store, clock=clock, lane_interval=HOUR) as queue:
        await queue.enqueue([Entry(n, lane=f"paced {n}") for n in range(many) for _ in "ab"])
        held = await queue.lease(many)
        await queue.enqueue([Entry(n, lane=f"fresh {n}") for n in range(many)])
        await queue.enqueue(range(many), delay=HOUR)
        await queue.enqueue([Entry(n, lane="long") for n in range(many)])
        assert len(held) == many

        store.rows.clear()
        assert len(await queue.lease()) == 1
        assert sum(store.rows) <= 5
        store.rows.clear()
        assert len(await queue.lease(lanes=["long"])) == 1
        assert sum(store.rows) <= 5
        store.rows.clear()
        assert await queue.lease(lanes=["nobody"]) == []
        assert sum(store.rows) <= 5


async def test_who_wants_more_than_there_is_reads_what_there_is(clock: ManualClock) -> None:
    store, many = Watched(), 300
    async with open_run(store, clock=clock) as queue:
        await queue.enqueue(range(many))
        held = await queue.lease(many)
        await queue.enqueue(range(many), delay=HOUR)
        await queue.enqueue(["one", "two"])
        for lease in held[:100]:
            await lease.bury("gone")
        store.rows.clear()
        assert items(await queue.lease(50)) == ["one", "two"]
        assert sum(store.rows) <= 10


async def test_a_lane_is_counted_while_it_has_something_ready(clock: ManualClock) -> None:
    async with open_run(MemoryStore(clock=clock), clock=clock) as queue:
        await queue.enqueue([Entry(lane, lane=lane) for lane in "aabc"])
        seen = [(await queue.stats()).lanes]
        for _ in range(4):
            await queue.dequeue()
            seen.append((await queue.stats()).lanes)
    assert seen == [3, 3, 2, 1, 0]


async def test_what_time_brings_comes_a_bounded_part_at_a_time(clock: ManualClock) -> None:
    store, many = Watched(), STEP + 200
    async with open_run(store, clock=clock, lane_interval=1.0) as queue:
        await queue.enqueue([Entry(n, lane=f"{n}.example") for n in range(many)])
        while leases := await queue.lease(STEP):
            for lease in leases:
                await lease.complete()
        await queue.enqueue(range(many), delay=2.0)
        clock.advance(3.0)
        store.rows.clear()
        await queue.lease()
        assert max(store.rows) == STEP
        assert (await accounted(queue)).ready == STEP - 1


WAITING = [f"{what} {n}" for what in ("waits", "late") for n in range(MANY)]
TENDING: dict[str, tuple[Callable[[KVStoreQueue], Awaitable[int | None]], int | None]] = {
    "clear": (lambda queue: queue.clear(), 2 * MANY),
    "cancel": (lambda queue: queue.cancel(WAITING), 2 * MANY),
    "purge": (lambda queue: queue.purge_dead(), MANY),
    "trim": (lambda queue: queue.trim_results(MANY), None),
    "forget": (lambda queue: queue.forget(), None),
}


@pytest.mark.parametrize("verb", TENDING)
async def test_tending_goes_a_bounded_part_at_a_time(clock: ManualClock, verb: str) -> None:
    """Whatever there is, nobody waits long behind one step."""
    store, (tend, told) = Watched(), TENDING[verb]
    async with open_run(store, clock=clock) as queue:
        await queue.enqueue(range(2 * MANY))
        while leases := await queue.lease(2 * STEP):
            for lease in leases:
                await (lease.complete(result=0) if lease.item < MANY else lease.bury("no"))
        for what, delay in (("waits", 0.0), ("late", HOUR)):
            await queue.enqueue(
                [Entry(n, id=f"{what} {n}", key=f"{what} {n}") for n in range(MANY)], delay=delay
            )
        store.rows.clear()
        assert await tend(queue) == told
        assert max(store.rows) <= STEP
        assert len(await queue.results()) == (0 if verb in {"trim", "forget"} else STEP)
        stats = await accounted(queue)
        assert stats.size == (2 * MANY if verb in {"purge", "trim"} else 0)
        assert stats.dead == (0 if verb in {"purge", "forget"} else MANY)


# --- what it writes ----------------------------------------------------------------------------


async def test_what_a_step_did_last_counts() -> None:
    """A key that is put and deleted in one step is not there, the other way round it is."""
    store, keys = MemoryStore(), OrderedKeys(b"run")
    await store.transact(lambda tx: tx.put_many([(b"back", b"1"), (b"gone", b"1")]))

    def run(tx: Transaction) -> list[bytes | None]:
        step = Step(tx, keys, LaneDefaults(), 1, {keys.state: None})
        for key in (b"back", b"gone"):
            step.put(key, b"2")
            step.delete(key)
        step.put(b"back", b"3")
        step.flush()
        return tx.get_many([b"back", b"gone"])

    assert await store.transact(run) == [b"3", None]


# --- what it leaves behind ---------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"lane_interval": 1.0}, {"lane_concurrency": 1}])
async def test_a_lane_that_is_over_leaves_nothing(
    clock: ManualClock, options: dict[str, Any]
) -> None:
    """Or a run over a million hosts would keep a million lanes."""
    store, left = MemoryStore(), []
    async with open_run(store, clock=clock, **options) as queue:
        for hosts in (1, 20):
            await _work_off(queue, clock, [f"{n}.example" for n in range(hosts)])
            left.append(len(await everything(store)))
    assert left[0] == left[1]


async def _work_off(queue: KVStoreQueue, clock: ManualClock, lanes: list[str]) -> None:
    await queue.enqueue([Entry(n, lane=lane) for lane in lanes for n in range(3)])
    for _ in range(4):
        for lease in await queue.lease(100):
            await lease.complete()
        clock.advance(2.0)
    assert (await accounted(queue)).size == 0


async def test_what_was_cancelled_leaves_no_mark(clock: ManualClock) -> None:
    store = MemoryStore()
    async with open_run(store, clock=clock) as queue:
        await queue.enqueue([Entry(n, id=str(n)) for n in range(3)])
        leases = await queue.lease(3)
        assert [await queue.cancel([one]) for one in "01"] == [1, 1]
        assert await _marks(store) == 2
        for lease in leases:
            await lease.release()
        assert await _marks(store) == 0
        assert items(await queue.lease(9)) == [2]


async def _marks(store: MemoryStore) -> int:
    of_run = OrderedKeys(b"run")
    state = of_run.state.removeprefix(of_run.all)
    (raw,) = [
        raw for key, raw in (await everything(store)).items() if key[len(of_run.all) :] == state
    ]
    return decode_state(raw).marks


async def test_what_is_due_while_it_is_being_cancelled_goes() -> None:
    """Cancelling is several steps: first the marks, then the requests."""
    store, keys = MemoryStore(), OrderedKeys(b"run")

    def run(tx: Transaction) -> QueueState:
        step = Step(tx, keys, LaneDefaults(), 1, {keys.state: None})
        for identity in (b"late", b"other"):
            step.make_wait(Record(id=identity, lane=b"", key=b"", priority=3, body=b"").encode(), 1)
        tending.mark(step, [b"late"])
        step.flush()
        step.now = 5
        step.promote()
        return step.state

    state = await store.transact(run)
    assert (state.ready, state.delayed, state.cancelled, state.marks) == (1, 0, 1, 0)


async def test_a_lane_that_ran_empty_owes_no_burst(clock: ManualClock) -> None:
    async with open_run(MemoryStore(), clock=clock, critical_burst=2) as queue:
        await queue.enqueue(["before"], priority=Priority.CRITICAL)
        (held,) = await queue.lease()
        await queue.enqueue(["first", "second"], priority=Priority.CRITICAL)
        await queue.enqueue(["usual"])
        order = [items(await queue.lease()) for _ in range(3)]
        assert order == [["first"], ["second"], ["usual"]]
        await held.complete()


# --- dead letters that cannot be read ----------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(bytes([Reason.FAILED, 0, 5]) + b"four", id="cut short"),
        pytest.param(bytes([200, 0, 1]) + b"x" + b"record", id="for no reason there is"),
    ],
)
def test_a_dead_letter_that_is_damaged(value: bytes) -> None:
    keys, position = OrderedKeys(b"run"), Position(7, 3)
    read = read_dead(keys, keys.dead(*position), value)
    assert read == Dead(position, Reason.CORRUPT, UNREADABLE, value)
