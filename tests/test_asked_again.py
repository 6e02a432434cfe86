"""The engine over an ordered store: who asks again is answered what was answered the first time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import clearing
from data_fetcher_core.queue.engine import STEP, Addition, Move, Op, Outcome, Settlement
from data_fetcher_core.queue.options import QueueOptions
from data_fetcher_core.queue.transactional_engine import TransactionalEngine
from data_fetcher_core.testing import ManualClock
from tests.harness import background, spin
from tests.scripted import new

ME = b"me"
HOUR = 3600.0


@pytest.fixture
async def engine(clock: ManualClock) -> AsyncIterator[TransactionalEngine]:
    async with MemoryStore(clock=clock) as store:
        yield await opened(store, b"run", clock)


async def opened(store: MemoryStore, name: bytes, clock: ManualClock) -> TransactionalEngine:
    engine = TransactionalEngine(store, name, clock)
    await engine.open(QueueOptions().shared(), ())
    return engine


def requests(count: int) -> list[Addition]:
    return [Addition([new(f"r{n}") for n in range(count)])]


async def test_the_same_leases_at_the_instant_of_the_answer(
    engine: TransactionalEngine, clock: ManualClock
) -> None:
    await engine.add(Op(ME, 1), requests(3))
    first = await engine.lease(Op(ME, 1), 5)
    clock.advance(2.0)
    again = await engine.lease(Op(ME, 1), 5)
    assert (again.grants, again.wait) == (first.grants, 0)
    assert again.now == first.now + 2_000_000


async def test_the_same_counts(engine: TransactionalEngine, clock: ManualClock) -> None:
    await engine.add(Op(ME, 1), requests(6))
    leased = (await engine.lease(Op(ME, 1), 4)).grants
    await engine.settle(Op(ME, 1), [Settlement(one.token, Move.BURY) for one in leased])
    positions = [letter.position for letter in await engine.dead(None, 9)]
    clock.advance(1.0)
    for _ in range(2):
        assert await engine.requeue(Op(ME, 1), positions[:2]) == 2
        assert (await engine.purge(Op(ME, 1), 0)).done == 2
        assert (await engine.clear(Op(ME, 1))).done == 4


async def test_the_same_part_of_a_clearing(
    engine: TransactionalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clearing, "STEP", 2)
    monkeypatch.setattr(clearing, "MOST_READ", 2)
    await engine.add(Op(ME, 1), requests(3))
    first = await engine.clear(Op(ME, 1))
    assert (first.done, first.place is None) == (2, False)
    assert await engine.clear(Op(ME, 1)) == first
    assert await engine.clear(Op(ME, 2), first.place or b"") == (1, None)
    assert await engine.clear(Op(ME, 2), first.place or b"") == (1, None)


async def test_leases_of_a_forgotten_run_are_lost_each_for_itself(clock: ManualClock) -> None:
    async with MemoryStore(clock=clock) as store:
        engine, other = [await opened(store, b"run", clock) for _ in range(2)]
        await engine.add(Op(ME, 1), requests(2))
        leased = (await engine.lease(Op(ME, 1), 2)).grants
        await other.forget()
        settlements = [Settlement(one.token, Move.COMPLETE) for one in leased]
        settled = await engine.settle(Op(ME, 1), settlements)
        assert [one.outcome for one in settled] == [Outcome.LOST] * 2


async def test_who_waits_for_room_waits(engine: TransactionalEngine) -> None:
    async with background(engine.wait_for_room(engine.watch(), HOUR)) as waiting:
        await spin()
        assert not waiting.done()


async def test_forgetting_goes_a_bounded_part_at_a_time_and_touches_no_other_run(
    clock: ManualClock,
) -> None:
    async with MemoryStore(clock=clock) as store:
        names = [b"%d" % number for number in range(9)]
        doomed, *beside = [await opened(store, name, clock) for name in names]
        for engine in (doomed, *beside):
            for part in (1, 2):
                await engine.add(Op(ME, part), [Addition([new(f"{part}")])])
        await doomed.add(Op(ME, 3), requests(STEP))
        await doomed.add(Op(ME, 4), requests(5))
        await doomed.forget()
        assert [(await engine.stats()).ready for engine in beside] == [2] * 8
        await doomed.open(QueueOptions().shared(), ())
        assert (await doomed.stats()).enqueued == 0
