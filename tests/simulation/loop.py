"""An event loop without a world outside: when nobody can go on, time jumps to whoever is due.

What asyncio promises is kept: callbacks run in the order in which they were registered. What it
does not promise is left to the seed: timers ring a little late, each by another bit, so that those
due at one instant come in any order; and who waits for the network waits as long as the seed says.

Time is counted in whole ticks of 2^-20 s. Sums of such instants are exact in a float, whatever is
added to all of them: so a clock that is an hour wrong changes nothing by rounding.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol
from weakref import WeakSet

TICKS = 2**20
_LATEST = 512
# Ten times what a world takes that comes to rest.
_MOST_TURNS = 80_000


class Owner(Protocol):
    """A process: what it has under way may be halted, or never go on."""

    dead: bool
    paused: bool
    stash: list[asyncio.Handle]
    tasks: WeakSet[asyncio.Task[Any]]


OWNER: ContextVar[Owner | None] = ContextVar("owner", default=None)


class Stuck(Exception):
    """Nobody can go on, and nobody ever will."""


class Numbered:
    """Hashes by number: the order of a set of these does not depend on addresses."""

    number: int

    def __hash__(self) -> int:
        return self.number


class _Future(Numbered, asyncio.Future):  # type: ignore[type-arg]
    __eq__ = object.__eq__
    __hash__ = Numbered.__hash__


class _Task(Numbered, asyncio.Task):  # type: ignore[type-arg]
    __eq__ = object.__eq__
    __hash__ = Numbered.__hash__


class VirtualLoop(asyncio.BaseEventLoop):
    """``until`` bounds it: a world that has not come to rest by then never will."""

    def __init__(self, lateness: random.Random, until: float) -> None:
        super().__init__()
        self._now = 0.0
        self._until = until
        self._late = lateness.random
        self._made = 0
        self._ready: deque[asyncio.Handle]
        # By instant, then in the order in which they were made.
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.turns = 0
        self.outside = Context()
        self.complaints: list[dict[str, Any]] = []
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]
        self.set_exception_handler(lambda _, context: self.complaints.append(context))

    # --- time ----------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        ticks = math.ceil(when * TICKS) + int(self._late() * _LATEST)
        now = self._now if when <= self._now else self._now + 1 / TICKS
        timer = asyncio.TimerHandle(max(ticks / TICKS, now), callback, args, self, context)
        self._made += 1
        heapq.heappush(self._timers, (timer.when(), self._made, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when it comes to the front."""

    # --- what sets are made of -----------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        future = _Future(loop=self)
        self._made += 1
        future.number = self._made
        return future

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any],
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task = _Task.__new__(_Task)
        self._made += 1
        task.number = self._made
        # Only now: it files itself in a set, by its number.
        task.__init__(work, loop=loop, context=context)  # type: ignore[misc]
        owner = OWNER.get() if context is None else context.get(OWNER)
        if owner is not None:
            owner.tasks.add(task)
        return task

    # --- running -------------------------------------------------------------------------------

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not ready:
            self._jump()
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        if self.turns > _MOST_TURNS:
            raise Stuck(f"busy for ever, at {self._now:.3f} s")
        for _ in range(len(ready)):
            handle: Any = ready.popleft()
            if not handle._cancelled:
                owner = handle._context.get(OWNER)
                if owner is None or not (owner.dead or owner.paused):
                    self.turns += 1
                    handle._run()
                elif not owner.dead:
                    owner.stash.append(handle)
            # As asyncio does: a traceback that reaches down to here would hold what was run last.
            handle = None

    def _jump(self) -> None:
        if not self._timers:
            raise Stuck(f"nobody can go on, at {self._now:.3f} s")
        self._now = max(self._now, self._timers[0][0])
        if self._now > self._until:
            raise Stuck(f"not at rest after {self._until:g} s")

    def go_on(self, owner: Owner) -> None:
        """What a process had before it was stopped it does now."""
        self._ready.extend(owner.stash)
        owner.stash.clear()

    def _process_events(self, event_list: list[Any]) -> None:
        """There is nothing outside."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""


def start_in(owner: Owner, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    """Begin ``work`` as a part of a process; what it starts belongs there, too."""
    context = copy_context()
    context.run(OWNER.set, owner)
    return asyncio.get_running_loop().create_task(work, name=name, context=context)
