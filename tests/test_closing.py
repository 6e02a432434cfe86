"""Closing in the midst of whatever is under way: nothing is left, and nothing comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core import open_queue
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.testing import ManualClock
from tests.conftest import MakeQueue
from tests.harness import background, client_of, foreign_tasks, is_lost, items, places, spin

HOUR = 3600.0
STEPS = 40


class Gate:
    """A verb of an engine that waits at a gate, on its way there or on its way back."""

    def __init__(self, verb: Callable[..., Awaitable[Any]], *, on_the_way_back: bool) -> None:
        self._verb = verb
        self._late = on_the_way_back
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def __call__(self, *asked: Any) -> Any:
        answer = await self._verb(*asked) if self._late else None
        self.reached.set()
        await self.opened.wait()
        return answer if self._late else await self._verb(*asked)


async def gate_at(
    queue: KVStoreQueue, verb: str, patch: pytest.MonkeyPatch, *, on_the_way_back: bool = False
) -> Gate:
    engine = (await client_of(queue)).engine
    gate = Gate(getattr(engine, verb), on_the_way_back=on_the_way_back)
    patch.setattr(engine, verb, gate)
    return gate


async def close_at(gate: Gate, queue: KVStoreQueue) -> None:
    """Close while somebody waits at the gate, and let him go on meanwhile."""
    await gate.reached.wait()
    async with background(queue.close()) as closing:
        await spin()
        gate.opened.set()
        await closing


async def consumers(witness: KVStoreQueue) -> list[bytes]:
    """All but the one who looks."""
    client = await client_of(witness)
    return [
        name for name in (await client.engine.beat(client.name)).consumers if name != client.name
    ]


async def test_the_first_lease_is_greeted_while_the_queue_closes(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, witness = make_queue(), make_queue()
    await queue.enqueue(["x"])
    gate = await gate_at(queue, "beat", monkeypatch)
    known = foreign_tasks(set())
    async with background(queue.lease(wait=HOUR)) as leasing:
        await close_at(gate, queue)
        assert foreign_tasks(known | {leasing}) == set()
        assert await consumers(witness) == []
        assert await leasing == []
    await spin()
    assert (foreign_tasks(known), await consumers(witness)) == (set(), [])
    assert await places(witness) == {"ready": 1}


async def test_a_run_that_is_forgotten_during_the_first_lease_leaves_no_heart(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue()
    gate = await gate_at(queue, "beat", monkeypatch)
    known = foreign_tasks(set())
    async with background(queue.lease(wait=HOUR)) as leasing:
        await gate.reached.wait()
        async with background(queue.forget()) as forgetting:
            await spin()
            gate.opened.set()
            await forgetting
        assert await leasing == []
    await spin()
    assert foreign_tasks(known) == set()


@pytest.mark.parametrize("wait", [0.0, HOUR])
async def test_who_waits_when_a_run_is_forgotten_goes_without_and_may_wait_again(
    make_queue: MakeQueue, wait: float
) -> None:
    witness = make_queue()
    for steps in range(1, STEPS):
        queue = make_queue()
        await queue.enqueue(range(3))
        held = await queue.lease(3)
        known = foreign_tasks(set())
        async with background(queue.lease(wait=wait)) as leasing:
            await spin(steps)
            await queue.forget()
            assert await leasing == [], steps
        assert foreign_tasks(known) == set(), steps
        assert [await is_lost(lease.complete()) for lease in held] == [True] * 3
        async with background(queue.lease(wait=HOUR)) as leasing:
            await spin()
            await witness.enqueue(["anew"])
            assert items(await leasing) == ["anew"], steps
        await queue.forget()
        assert (await consumers(witness), await places(witness)) == ([], {}), steps


async def test_a_queue_that_closes_when_the_first_who_opens_it_gives_up_stays_closed(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait for the same opening; the next of them would go on with it afterwards."""
    queue, opening = make_queue(), asyncio.Event()

    async def never(*_: Any) -> Any:
        opening.set()
        await asyncio.sleep(HOUR)

    async def give_up_and_close() -> None:
        with suppress(asyncio.CancelledError):
            await queue.stats()
        await queue.close()

    known = foreign_tasks(set())
    with monkeypatch.context() as patch:
        patch.setattr(queue._engine, "open", never)
        closing = asyncio.ensure_future(give_up_and_close())
        await opening.wait()
    async with background(queue.lease(wait=HOUR)) as leasing:
        await spin()
        closing.cancel()
        await closing
        assert foreign_tasks(known | {leasing}) == set()
        assert await leasing == []
    assert (foreign_tasks(known), queue.session_at_hand()) == (set(), None)


async def test_who_opens_a_queue_while_its_run_is_forgotten_comes_first(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, witness = make_queue(), make_queue()
    gate = Gate(queue._engine.open, on_the_way_back=False)
    with monkeypatch.context() as patch:
        patch.setattr(queue._engine, "open", gate)
        async with background(queue.stats()), background(queue.enqueue(["x"])) as adding:
            await gate.reached.wait()
            async with background(queue.forget()) as forgetting:
                await spin()
                gate.opened.set()
                assert await adding == 1
                await forgetting
    assert await places(witness) == {}


@pytest.mark.parametrize("store_kind", ["memory"], indirect=True)
def test_who_closes_in_another_loop_waits_for_nobody_of_the_first(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first was stopped while somebody opened the queue."""
    queue, first = make_queue(), asyncio.new_event_loop()
    monkeypatch.setattr(queue._engine, "open", Gate(queue._engine.open, on_the_way_back=False))
    opening = first.create_task(queue.open_session())
    first.run_until_complete(spin())
    monkeypatch.undo()
    try:
        asyncio.run(asyncio.wait_for(queue.close(), 10.0))
    finally:
        opening.cancel()
        first.run_until_complete(asyncio.wait([opening]))
        first.close()


async def test_who_sweeps_while_the_queue_closes_does_not_come_back(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, witness = make_queue(), make_queue()
    gate = await gate_at(queue, "beat", monkeypatch)
    async with background(queue.sweep()) as sweeping:
        await close_at(gate, queue)
        await sweeping
    assert await consumers(witness) == []


async def test_who_proves_a_lease_while_the_queue_closes_does_not_come_back(
    make_queue: MakeQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, witness = make_queue(), make_queue()
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    gate = await gate_at(queue, "beat", monkeypatch)
    clock.advance(HOUR)
    async with background(is_lost(lease.confirm())) as proving:
        await close_at(gate, queue)
        await proving
    assert await is_lost(lease.complete())
    assert await consumers(witness) == []
    assert await places(witness) == {"ready": 1}


async def test_who_takes_leave_confirms_no_lease(
    make_queue: MakeQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks the store nothing any more, and goes back with the rest."""
    queue = make_queue()
    await queue.enqueue(["x", "y"])
    (lease,) = await queue.lease()
    gate = await gate_at(queue, "lease", monkeypatch)
    async with background(queue.lease()), background(queue.close()) as closing:
        await gate.reached.wait()
        clock.advance(HOUR)
        assert await is_lost(lease.confirm())
        gate.opened.set()
        await closing
    assert await places(make_queue()) == {"ready": 2}


async def test_a_lease_that_a_close_overtakes_is_none(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, witness = make_queue(), make_queue()
    await queue.enqueue(["x"])
    gate = await gate_at(queue, "lease", monkeypatch, on_the_way_back=True)
    async with background(queue.lease()) as leasing:
        await close_at(gate, queue)
        assert await leasing == []
    assert await places(witness) == {"ready": 1}


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "not open yet"])
@pytest.mark.parametrize("verb", ["lease", "lease other lanes, patiently", "sweep"])
async def test_closed_at_any_step_of_its_first_verb(
    make_queue: MakeQueue, verb: str, is_open: bool
) -> None:
    begin: Mapping[str, Callable[[KVStoreQueue], Coroutine[Any, Any, Any]]] = {
        "lease": lambda queue: queue.lease(),
        "lease other lanes, patiently": lambda queue: queue.lease(wait=HOUR, lanes=["other"]),
        "sweep": lambda queue: queue.sweep(),
    }
    witness = make_queue()
    await witness.enqueue(["x"])
    for steps in range(1, STEPS):
        queue = make_queue()
        if is_open:
            await queue.open_session()
        known = foreign_tasks(set())
        async with background(begin[verb](queue)) as asking:
            await spin(steps)
            is_overtaken = not asking.done()
            await queue.close()
            assert foreign_tasks(known | {asking}) == set(), steps
            assert await consumers(witness) == [], steps
            answer = await asking
        assert not (verb == "lease" and is_overtaken and answer), steps
        assert (await consumers(witness), await places(witness)) == ([], {"ready": 1}), steps
        assert foreign_tasks(known) == set(), steps


@pytest.mark.parametrize("wait", [0.0, HOUR])
async def test_a_store_that_was_closed_with_its_queue_stays_closed(
    tmp_path: Path, wait: float
) -> None:
    url = f"sqlite:///{tmp_path / 'run.db'}"
    for steps in range(1, STEPS):
        queue = open_queue(url, run_id="r")
        async with background(queue.lease(wait=wait)) as leasing:
            await spin(steps)
            await queue.close()
            await leasing
        assert repr(queue._store).endswith("closed)"), steps


async def test_a_queue_whose_first_lease_was_overtaken_can_be_used_again(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue()
    await queue.enqueue(["x"])
    async with background(queue.lease()):
        await spin(1)
        await queue.close()
    assert items(await queue.lease()) == ["x"]
