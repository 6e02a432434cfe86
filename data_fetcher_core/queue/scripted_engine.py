"""The queue's verbs over Redis: one Lua script each, one round trip per batch.

The scripts in ``lua/`` do the work; here their arguments are gathered and their replies read.
Nothing is sent twice by itself: who got no answer sends the same operation again, and the script
answers what it answered the first time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from data_fetcher_core.clock import Clock
from data_fetcher_core.core import QueueStats
from data_fetcher_core.errors import StoreError, StoreFull
from data_fetcher_core.kv_store.base import ScriptHost
from data_fetcher_core.queue import scripted_wire as wire
from data_fetcher_core.queue.engine import (
    MOST_CHILDREN,
    REMEMBERED_FORGETS,
    STEP,
    Addition,
    Admitted,
    Beat,
    Cleared,
    Dead,
    Forgotten,
    Granted,
    Insist,
    LaneChange,
    Op,
    Outcome,
    Position,
    Settled,
    Settlement,
    Slice,
    at_once,
    was_forgotten,
)
from data_fetcher_core.queue.keys import Keys, op_slot
from data_fetcher_core.queue.nonsense import reads
from data_fetcher_core.queue.scripted_cancelling import Cancellation
from data_fetcher_core.queue.scripts import FORGETTING, load_scripts
from data_fetcher_core.queue.tokens import token_base

# Settlements that bring children may be refused by a full store; those that do not, never.
_PLAIN, _WITH_CHILDREN = "settle", "settle+"
_OPERATIONS = (
    *("add", "lease", _PLAIN, _WITH_CHILDREN),
    *("change_lanes", "requeue", "purge", "cancel", "clear"),
)
_FORGOTTEN = "DFC_FORGOTTEN"
_LONGEST_BLOCK = 10.0
_MOST_LISTS = 1_000
_NONE: Mapping[str, Any] = {}
# The parts of a clearing: lanes, and keys that count as forgotten already.
_DROPPING, _SWEEPING = b"l", b"k"


class ScriptedEngine:
    """A :class:`~.engine.QueueEngine` over a :class:`ScriptHost`."""

    # Not all who ask at once are served at once: while they work, the server serves the others.
    leased_together = 40

    def __init__(
        self, store: ScriptHost, namespace: str, clock: Clock, *, follows: bool = True
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._follows = follows
        self._keys = Keys(store.key_prefix, namespace)
        self._clock = clock
        self._scripts = load_scripts()
        self._secret = os.urandom(16)
        self._generation = b""
        self._offered: Mapping[str, str] = {}

    # --- the run -------------------------------------------------------------------------------

    @reads
    async def open(self, offered: Mapping[str, str], given: Sequence[str]) -> Mapping[str, str]:
        rest: list[str | int] = []
        for name, value in offered.items():
            rest += [name, value, int(name in given)]
        args = {"new_generation": _new_name()}
        generation, options = await self._send("open", args, rest)
        while generation == b"%d" % FORGETTING:
            await self.forget()
            generation, options = await self._send("open", args, rest)
        self._generation, self._offered = generation, dict(offered)
        pairs = zip(options[::2], options[1::2], strict=True)
        return {name.decode(): value.decode() for name, value in pairs}

    async def forget(self, insist: Insist = at_once) -> None:
        """Whoever opens the run finishes this, if it is interrupted."""
        # This run and no other: while a step is repeated, whoever shares the engine may already
        # be in the one that took its place.
        args = {
            "generation": self._generation,
            "new_generation": _new_name(),
            "remembered": REMEMBERED_FORGETS,
        }
        while await insist(partial(self._send, "forget", args)):
            pass

    # --- requests ------------------------------------------------------------------------------

    @reads
    async def add(self, op: Op, additions: Sequence[Addition]) -> list[list[Admitted]]:
        admitted: list[list[Admitted]] = []
        parts = wire.in_parts(additions, lambda addition: len(addition.requests), STEP)
        for number, part in enumerate(parts, start=1):
            packed = list(wire.pack_additions(part))
            reply = await self._operate("add", op, rest=packed, part=number)
            admitted += wire.read_admitted(reply, part)
        return admitted

    @reads
    async def lease(
        self,
        op: Op,
        want: int,
        lanes: Sequence[bytes] | None = None,
        steal: Sequence[bytes] = (),
    ) -> Granted:
        base = token_base(op, self._secret)
        args = {
            "want": min(max(want, 0), STEP),
            "token_base": base,
            "lane_count": -1 if lanes is None else len(lanes),
        }
        reply = await self._operate("lease", op, args, [*(lanes or ()), *steal])
        return wire.read_granted(reply, base)

    @reads
    async def settle(self, op: Op, settlements: Sequence[Settlement]) -> list[Settled]:
        bring = [index for index, one in enumerate(settlements) if one.addition.requests]
        plain = [index for index, one in enumerate(settlements) if not one.addition.requests]
        settled: dict[int, Settled] = {}
        try:
            for slot, indexes in ((_PLAIN, plain), (_WITH_CHILDREN, bring)):
                chosen = [settlements[index] for index in indexes]
                outcomes = await self._settle(slot, op, chosen)
                settled |= zip(indexes, outcomes, strict=True)
        except Forgotten:
            pass
        return [settled.get(index, Settled(Outcome.LOST)) for index in range(len(settlements))]

    async def _settle(self, slot: str, op: Op, settlements: Sequence[Settlement]) -> list[Settled]:
        settled: list[Settled] = []
        parts = wire.in_parts(settlements, lambda one: len(one.addition.requests), MOST_CHILDREN)
        for number, part in enumerate(parts, start=1):
            args = {**_slot(op, slot, number), "urgent": int(slot == _PLAIN)}
            rest = list(wire.pack_settlements(part))
            try:
                reply = await self._send("settle", args, rest, op.client)
            except StoreFull:
                settled += [Settled(Outcome.FULL)] * len(part)
            else:
                settled += wire.read_settled(reply, part)
        return settled

    # --- consumers -----------------------------------------------------------------------------

    @reads
    async def beat(self, client: bytes) -> Beat:
        held, consumers = await self._run("beat", client=client)
        beats = zip(consumers[::2], consumers[1::2], strict=True)
        return Beat(held, {consumer: int(number) for consumer, number in beats})

    @reads
    async def held(self, client: bytes) -> list[bytes]:
        return wire.read_texts(await self._run("held", client=client))

    @reads
    async def leave(self, client: bytes) -> Slice:
        return _slice(await self._run("leave", rest=_slots(client), client=client))

    @reads
    async def reap(self, client: bytes, beat: int) -> Slice:
        reply = await self._run("reap", {"beat_seen": beat}, _slots(client), client)
        return _slice(reply)

    # --- lanes, dead letters, cancelling -------------------------------------------------------

    async def change_lanes(self, op: Op, changes: Sequence[LaneChange]) -> None:
        for number, part in enumerate(wire.in_parts(changes, _one, STEP), start=1):
            packed = list(wire.pack_changes(part))
            await self._operate("change_lanes", op, rest=packed, part=number)

    @reads
    async def dead(self, after: Position | None, want: int) -> list[Dead]:
        at, number = Position(-1, 0) if after is None else after
        args = {"after_at": at, "after_number": number, "want": min(want, STEP)}
        return wire.read_dead(await self._run("dead", args))

    @reads
    async def requeue(self, op: Op, positions: Sequence[Position]) -> int:
        requeued = 0
        for number, part in enumerate(wire.in_parts(positions, _one, STEP), start=1):
            packed = [value for position in part for value in position]
            requeued += await self._operate("requeue", op, rest=packed, part=number)
        return requeued

    @reads
    async def purge(self, op: Op, older_than: int) -> Slice:
        return _slice(await self._operate("purge", op, {"older_than": older_than}))

    @reads
    async def clear(self, op: Op, place: bytes = b"") -> Cleared:
        """A place is the run that is cleared, and which part of it."""
        if not place:
            return _cleared(self._generation, await self._operate("clear", op))
        run, part = place[:-1], place[-1:]
        this = {"generation": run}
        try:
            if part == _SWEEPING:
                return Cleared(0, place if await self._send("sweep_seen", this) else None)
            args = {**this, **_slot(op, "clear", 1)}
            return _cleared(run, await self._send("clear", args, (), op.client))
        except Forgotten:
            # Nobody asked that the run which took its place be cleared.
            return Cleared(0, None)

    @reads
    async def cancel(
        self, op: Op, ids: Sequence[bytes], forget: bool, insist: Insist = at_once
    ) -> int:
        async def send(verb: str, args: Mapping[str, Any], rest: Sequence[bytes], part: int) -> Any:
            return await insist(partial(self._operate, verb, op, args, rest, part))

        async def look(after: bytes) -> Any:
            return await insist(partial(self._run, "waiting_lanes", {"after": after}))

        return await Cancellation(ids, forget=forget, send=send, look=look).run()

    # --- looking -------------------------------------------------------------------------------

    @reads
    async def peek(self, want: int) -> list[bytes]:
        return wire.read_texts(await self._run("peek", {"want": min(max(want, 0), STEP)}))

    @reads
    async def checkpoints(self, names: Sequence[bytes]) -> list[bytes | None]:
        found = await self._run("checkpoints", rest=names)
        pairs = zip(names, found, strict=True)
        return [None if one is None else wire.read_text(one) for _, one in pairs]

    async def swap(self, name: bytes, expected: bytes | None, value: bytes | None) -> bool:
        args = {"name": name, "expected": expected or b"", "value": value or b""}
        return bool(await self._run("swap", args))

    @reads
    async def results(self, after: int, want: int) -> list[tuple[int, bytes]]:
        args = {"after": after, "want": min(max(want, 0), STEP)}
        first, found = await self._run("results", args)
        return list(enumerate(wire.read_texts(found), start=int(first)))

    async def trim_results(self, upto: int, insist: Insist = at_once) -> None:
        while await insist(partial(self._run, "trim_results", {"upto": upto})):
            pass

    @reads
    async def stats(self) -> QueueStats:
        lanes, counts = await self._run("stats")
        return QueueStats(lanes=lanes, **wire.read_counts(counts))

    @reads
    async def recount(self) -> Mapping[str, tuple[int, int]]:
        return wire.read_differences(await self._run("recount"))

    # --- waiting -------------------------------------------------------------------------------

    def watch(self) -> int:
        """Always 0: a marker in the store tells of what happened before the wait began."""
        return 0

    async def wait_for_work(
        self, mark: int, timeout: float, lanes: Sequence[bytes] | None = None
    ) -> None:
        if lanes is None:
            await self._wait_on([self._keys.named("wake")], timeout)
        elif lanes:
            await self._wait_on([self._keys.wake(lane) for lane in lanes[:_MOST_LISTS]], timeout)
        else:
            await self._clock.sleep(timeout)

    async def wait_for_room(self, mark: int, timeout: float) -> None:
        await self._wait_on([self._keys.named("room")], timeout)

    async def _wait_on(self, lists: Sequence[bytes], timeout: float) -> None:
        while timeout > 0:
            block = min(timeout, _LONGEST_BLOCK)
            if await self._store.block_on(lists, block) is not None:
                return
            timeout -= block

    # --- one step ------------------------------------------------------------------------------

    async def _operate(
        self,
        verb: str,
        op: Op,
        args: Mapping[str, Any] = _NONE,
        rest: Sequence[Any] = (),
        part: int = 1,
    ) -> Any:
        """Run an operation that may be sent again."""
        slot = verb.partition("_")[0] if verb.startswith("cancel_") else verb
        return await self._run(verb, {**args, **_slot(op, slot, part)}, rest, op.client)

    async def _run(
        self,
        verb: str,
        args: Mapping[str, Any] = _NONE,
        rest: Sequence[Any] = (),
        client: bytes = b"",
    ) -> Any:
        """Run a step; in the run that followed, if the one we knew was forgotten."""
        while True:
            try:
                return await self._send(verb, args, rest, client)
            except Forgotten:
                if not self._follows:
                    raise was_forgotten(self._namespace) from None
                await self.open(self._offered, ())

    async def _send(
        self,
        verb: str,
        args: Mapping[str, Any],
        rest: Sequence[Any] = (),
        client: bytes = b"",
    ) -> Any:
        script = self._scripts[verb]
        named = {
            "generation": self._generation,
            "instant": self._instant(),
            "client": client,
            **args,
        }
        keys, arguments = script.bind(self._keys, self._keys.leased(client), named, rest)
        try:
            return await self._store.run_script(script.source, keys, arguments)
        except StoreError as error:
            if _FORGOTTEN in str(error):
                raise Forgotten from None
            raise

    def _instant(self) -> int:
        """0 for the server's own clock."""
        instant = self._clock.store_now()
        return 0 if instant is None else round(instant * 1e6)


def _cleared(run: bytes, reply: Sequence[int]) -> Cleared:
    done, more, unswept = reply
    part = _DROPPING if more else _SWEEPING if unswept else b""
    return Cleared(done, run + part if part else None)


def _new_name() -> bytes:
    return os.urandom(12).hex().encode()


def _slot(op: Op, verb: str, part: int) -> dict[str, Any]:
    return {"slot": op_slot(op.client, verb), "op_number": op.number, "part": part}


def _slots(client: bytes) -> list[bytes]:
    return [op_slot(client, operation) for operation in _OPERATIONS]


def _slice(reply: Sequence[int]) -> Slice:
    done, more = reply
    return Slice(done, bool(more))


def _one(_: object) -> int:
    return 1
