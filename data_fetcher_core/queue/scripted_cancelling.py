"""Cancelling over Redis: mark, walk all that waits, leave only the marks of what is in flight."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from data_fetcher_core.queue import scripted_wire as wire
from data_fetcher_core.queue.engine import STEP
from data_fetcher_core.queue.identity import seen_from_key

# A step of the cancellation: its script, arguments, values, and which part of the whole it is.
Send = Callable[[str, Mapping[str, Any], Sequence[bytes], int], Awaitable[Any]]
# The lanes with something ready that have a later turn than this one.
Look = Callable[[bytes], Awaitable[Sequence[bytes]]]
_WALK, _WHOLE = 1, 2


class Cancellation:
    def __init__(self, ids: Sequence[bytes], *, forget: bool, send: Send, look: Look) -> None:
        self._ids = ids
        self._forget = forget
        self._send = send
        self._look = look

    async def run(self) -> int:
        total: int = await self._send("cancel_mark", {}, self._ids, _WHOLE)
        if total < 0:
            await self._walk_ready()
            await self._walk_delayed()
            (total,) = await self._step("cancel_end", part=_WHOLE)
        return total

    async def _step(
        self,
        verb: str,
        args: Mapping[str, Any] | None = None,
        lanes: Sequence[bytes] = (),
        part: int = _WALK,
    ) -> Any:
        """Where the step asks for hashes of keys, it is sent again with them."""
        named = {**(args or {}), "forget": int(self._forget), "id_count": len(self._ids)}
        hashes: dict[bytes, bytes] = {}
        while True:
            pairs = [one for pair in hashes.items() for one in pair]
            *reply, unhashed = await self._send(verb, named, [*lanes, *self._ids, *pairs], part)
            if not unhashed:
                return reply
            hashes |= {key: wire.seen_hash(seen_from_key(key)) for key in unhashed}

    async def _walk_ready(self) -> None:
        """A lane that is served meanwhile gets a later turn, so that none is missed."""
        after, visited, more = b"0", set[bytes](), True
        while more:
            page = await self._look(after)
            lanes = [lane for lane in page[1::2] if lane not in visited]
            more = bool(lanes) or len(page) == 2 * STEP
            await self._walk_lanes(lanes)
            visited.update(lanes)
            after = page[-2] if page else after

    async def _walk_lanes(self, lanes: Sequence[bytes]) -> None:
        priority, offset, walks = 1, 0, -1
        while lanes:
            place = {"priority": priority, "offset": offset, "walks_seen": walks}
            reply = await self._step("cancel_ready", {**place, "lane_count": len(lanes)}, lanes)
            finished, priority, offset, walks = reply
            lanes = lanes[finished:]

    async def _walk_delayed(self) -> None:
        offset, walks = 0, -1
        while offset >= 0:
            place = {"offset": offset, "walks_seen": walks}
            offset, walks = await self._step("cancel_delayed", place)
