"""The scripts against the model: the same random steps, and after each the same answers."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from data_fetcher_core.core import Failure
from data_fetcher_core.kv_store.redis import RedisStore
from data_fetcher_core.queue.engine import (
    Addition,
    Admission,
    LaneChange,
    Move,
    NewRequest,
    Op,
    Outcome,
    Reason,
    Settlement,
)
from data_fetcher_core.queue.identity import seen_from_key
from data_fetcher_core.queue.records import Record, decode, pack_failures, unpack_failures
from data_fetcher_core.queue.scripted_engine import ScriptedEngine
from data_fetcher_core.testing.clock import ManualClock
from data_fetcher_core.testing.model import Model
from data_fetcher_core.testing.model_nouns import ModelOptions, Request
from tests.scripted import clear
from tests.servers import RedisServer

SEQUENCES = int(os.environ.get("DFC_SEQUENCES", "200"))
FIRST_SEED = int(os.environ.get("DFC_FIRST_SEED", "0"))
STEPS = 60
LANES = ["", "a", "b", "lane:{c}"]
CLIENTS = ["one", "two"]
ADMISSIONS = {
    "new": Admission.NEW,
    "duplicate": Admission.DUPLICATE,
    "full": Admission.FULL,
    "over": Admission.OVER,
}
REASONS = {"failed": Reason.FAILED, "expired": Reason.EXPIRED, "poisoned": Reason.POISONED}


class BatchModel(Model):
    """A batch of settlements places the lanes it touched at its end."""

    held_back: dict[str, None] | None = None

    def place(self, name: str) -> None:
        if self.held_back is None:
            super().place(name)
        else:
            self.held_back[name] = None

    def place_held_back(self) -> None:
        names, self.held_back = self.held_back, None
        for name in names or ():
            self.place(name)


@dataclass
class Pair:
    """A model and an engine to which the same is done."""

    model: BatchModel
    engine: ScriptedEngine
    clock: ManualClock
    chance: random.Random
    made: int = 0
    operations: int = 0
    # Client and delivery to token and record, for every lease that may still be held.
    leases: dict[tuple[str, int], tuple[bytes, Record]] = field(default_factory=dict)

    def op(self, client: str) -> Op:
        self.operations += 1
        return Op(client.encode(), self.operations)

    def requests(self, most: int) -> list[Request]:
        return [self.request() for _ in range(self.chance.randint(1, most))]

    def request(self) -> Request:
        self.made += 1
        pick = self.chance.choice
        # An id may come again; it is another request.
        name = pick([self.made, self.made, self.chance.randint(1, self.made)])
        return Request(
            id=f"r{name}",
            item=self.made,
            lane=pick(LANES),
            key=pick([None, None, f"k{pick(range(20))}"]),
            priority=pick([1, 3, 3, 4, 6]),
            delay=pick([0, 0, 0, 5, 10]),
            expires_in=pick([0, 0, 0, 7]),
        )

    # --- the steps -----------------------------------------------------------------------------

    async def add(self) -> None:
        requests = self.requests(5)
        checkpoint = self.chance.choice([None, {"cursor": self.made}])
        addition = Addition(
            [as_new(request) for request in requests],
            {name.encode(): str(value).encode() for name, value in (checkpoint or {}).items()},
            whole=checkpoint is not None,
        )
        [found] = await self.engine.add(self.op("one"), [addition])
        expected = self.model.add(requests, checkpoint)
        assert [(a.admission, a.id.decode()) for a in found] == [
            (ADMISSIONS[word], identity) for word, identity in expected
        ]

    async def lease(self) -> None:
        client, want = self.chance.choice(CLIENTS), self.chance.randint(0, 6)
        lanes = self.chance.choice([None, None, self.chance.sample(LANES, 2)])
        steal = self.chance.sample(LANES, self.chance.randint(0, 2)) if lanes else []
        granted = await self.engine.lease(
            self.op(client),
            want,
            None if lanes is None else [lane.encode() for lane in lanes],
            [lane.encode() for lane in steal],
        )
        expected = self.model.lease(client, want, lanes, steal)
        records = [decode(grant.record) for grant in granted.grants]
        assert [facts(record) for record in records] == [facts_of(r) for r in expected]
        assert [record.lane.decode() for record in records] == [r.lane for r in expected]
        for grant, record, request in zip(granted.grants, records, expected, strict=True):
            self.leases[client, request.delivery] = grant.token, record

    async def settle(self) -> None:
        if not self.leases:
            return
        client = self.chance.choice(list(self.leases))[0]
        mine = [delivery for owner, delivery in self.leases if owner == client]
        chosen = self.chance.sample(mine, self.chance.randint(1, len(mine)))
        with_children = self.chance.random() < 0.3
        settlements, expected = [], []
        self.model.held_back = {}
        for delivery in chosen:
            settlement, outcome = self.settlement(client, delivery, with_children)
            settlements.append(settlement)
            expected.append(outcome)
        self.model.place_held_back()
        found = await self.engine.settle(self.op(client), settlements)
        assert [one.outcome for one in found] == expected

    def settlement(
        self, client: str, delivery: int, with_children: bool
    ) -> tuple[Settlement, Outcome]:
        token, record = self.leases[client, delivery]
        if self.chance.random() < 0.9:
            del self.leases[client, delivery]
        marked = delivery in self.model.cancelled
        move = Move.COMPLETE if with_children else self.chance.choice(list(Move))
        done, settlement = self.moved(move, client, delivery, (token, record), with_children)
        if not done:
            return settlement, Outcome.LOST
        cancelled = marked and move not in {Move.COMPLETE, Move.DROP}
        return settlement, Outcome.CANCELLED if cancelled else Outcome.DONE

    def moved(
        self,
        move: Move,
        client: str,
        delivery: int,
        lease: tuple[bytes, Record],
        with_children: bool,
    ) -> tuple[bool, Settlement]:
        model, (token, record) = self.model, lease
        if move is Move.COMPLETE:
            children = self.requests(3) if with_children else []
            result = self.chance.choice([None, "r"])
            done = model.complete(client, delivery, children, None, result)
            addition = Addition([as_new(child) for child in children])
            raw = None if result is None else result.encode()
            return done, Settlement(token, move, addition=addition, result=raw)
        if move is Move.DROP:
            return model.drop(client, delivery, {}), Settlement(token, move)
        if move is Move.GIVE_BACK:
            return model.give_back(client, delivery), Settlement(token, move)
        failed = failed_once(record)
        if move is Move.BURY:
            done = model.give_up(client, delivery, "failed")
            return done, Settlement(token, move, head=failed.head(), detail=b"gone")
        delay, priority = self.chance.choice([0, 0, 5]), self.chance.choice([None, 6])
        done = model.release(client, delivery, delay, "failed", priority)
        head = failed._replace(priority=priority or failed.priority).head()
        return done, Settlement(token, move, head=head, delay=delay)

    async def leave(self) -> None:
        client = self.chance.choice(CLIENTS)
        self.model.leave(client)
        slice_ = await self.engine.leave(client.encode())
        assert not slice_.more

    async def reap(self) -> None:
        client = self.chance.choice(CLIENTS)
        beats = (await self.engine.beat(b"sweeper")).consumers
        if client.encode() in beats:
            self.model.reap(client)
            await self.engine.reap(client.encode(), beats[client.encode()])

    async def change_lane(self) -> None:
        lane, op = self.chance.choice(LANES), self.op("one")
        kind = self.chance.choice(["shut", "reopen", "pace"])
        if kind == "shut":
            self.model.shut(lane, 8)
            await self.engine.change_lanes(op, [LaneChange(lane.encode(), shut=8)])
        elif kind == "reopen":
            self.model.reopen(lane)
            await self.engine.change_lanes(op, [LaneChange(lane.encode(), reopen=True)])
        else:
            interval, burst = self.chance.choice([-1, 0, 4]), self.chance.choice([-1, 0, 2])
            limit = self.chance.choice([-1, 0, 1, 2])
            self.model.set_lane(lane, interval, burst, limit)
            change = LaneChange(lane.encode(), interval=interval, burst=burst, limit=limit)
            await self.engine.change_lanes(op, [change])

    async def advance(self) -> None:
        duration = self.chance.choice([1, 3, 10])
        self.clock.advance(duration / 1e6)
        self.model.now = self.clock.microseconds

    async def cancel(self) -> None:
        # Several lanes whose gates have passed would be placed in an order of no meaning.
        self.model.promote()
        await self.engine.lease(self.op("one"), 0)
        ids = [f"r{self.chance.randint(1, max(self.made, 1))}" for _ in range(4)]
        forget = self.chance.random() < 0.5
        if forget:
            self.model.forget_keys_of(ids)
        found = await self.engine.cancel(self.op("one"), [i.encode() for i in ids], forget)
        assert found == self.model.cancel(ids)

    async def clear(self) -> None:
        if self.chance.random() < 0.2:
            dropped = sum(await clear(self.engine, lambda: self.op("one")))
            assert dropped == self.model.clear()
            for lane in self.model.lanes.values():
                lane.criticals = 0

    async def requeue(self) -> None:
        letters = await self.engine.dead(None, 1000)
        chosen = {letter.position for letter in letters if self.chance.random() < 0.5}
        ids = [decode(x.record).id.decode() for x in letters if x.position in chosen]
        # The model knows letters by id: take all of an id.
        positions = [x.position for x in letters if decode(x.record).id.decode() in ids]
        found = await self.engine.requeue(self.op("one"), positions)
        assert found == self.model.requeue(ids)

    async def purge(self) -> None:
        older_than = self.chance.choice([0, 10, 20])
        slice_ = await self.engine.purge(self.op("one"), older_than)
        assert slice_.done == self.model.purge(older_than)

    # --- comparing -----------------------------------------------------------------------------

    async def compare(self) -> None:
        model, engine = self.model, self.engine
        assert await engine.stats() == model.stats()
        want = self.chance.choice([3, 100])
        shown = [facts(decode(raw)) for raw in await engine.peek(want)]
        assert shown == [facts_of(request) for request in model.peek(want)]
        letters = [(x.reason, facts(decode(x.record))) for x in await engine.dead(None, 1000)]
        assert letters == [(REASONS[why], facts_of(r)) for _, why, r in model.dead]
        assert [raw for _, raw in await engine.results(0, 1000)] == [
            result.encode() for result in model.results
        ]
        assert await engine.recount() == {}


def as_new(request: Request) -> NewRequest:
    record = Record(
        id=request.id.encode(),
        lane=request.lane.encode(),
        key=(request.key or "").encode(),
        priority=request.priority,
        body=str(request.item).encode(),
    )
    return NewRequest(
        id=record.id,
        record=record.encode(),
        delay=request.delay,
        expires_in=request.expires_in,
        seen=seen_from_key(record.key) if request.key else b"",
        told_id=record.id if request.key else b"",
    )


def facts(record: Record) -> tuple[Any, ...]:
    return (
        record.id.decode(),
        record.priority,
        record.attempts,
        record.deaths,
        record.ready_at,
        record.expires_at,
        int(record.body),
        len(unpack_failures(record.history)),
    )


def facts_of(request: Request) -> tuple[Any, ...]:
    return (
        request.id,
        request.priority,
        request.attempts,
        request.deaths,
        request.ready_at,
        request.expires_at,
        request.item,
        len(request.failures),
    )


def failed_once(record: Record) -> Record:
    failures = (*unpack_failures(record.history), Failure("kind", "failed", 0.0))
    return record._replace(attempts=record.attempts + 1, history=pack_failures(failures))


async def run_sequence(seed: int, store: RedisStore) -> None:
    chance, clock = random.Random(seed), ManualClock()
    options = {
        "capacity": chance.choice([0, 0, 12]),
        "max_deaths": chance.choice([1, 2, 5]),
        "ageing_step": chance.choice([0, 4, 1000]),
        "critical_burst": chance.choice([0, 1, 2]),
        "lane_interval": chance.choice([0, 0, 3]),
        "lane_burst": chance.choice([0, 2]),
        "lane_concurrency": chance.choice([0, 0, 2]),
    }
    engine = ScriptedEngine(store, f"model:{seed}", clock)
    await engine.open({name: str(value) for name, value in options.items()}, ())
    model = BatchModel(ModelOptions(**options), now=clock.microseconds)
    pair = Pair(model, engine, clock, chance)
    steps = [pair.add] * 5 + [pair.lease] * 6 + [pair.settle] * 5 + [pair.advance] * 4
    steps += [pair.leave, pair.reap, pair.change_lane, pair.cancel, pair.clear]
    steps += [pair.requeue, pair.purge]
    for _ in range(STEPS):
        await chance.choice(steps)()
        await pair.compare()
    await engine.forget()


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SEQUENCES, 50))
async def test_random_steps(first: int, redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.url)
    try:
        for seed in range(first, min(first + 50, FIRST_SEED + SEQUENCES)):
            try:
                await run_sequence(seed, store)
            except AssertionError as error:
                raise AssertionError(f"with seed {seed}: {error}") from error
    finally:
        await store.close()
