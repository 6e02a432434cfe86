"""Time-outs that count what the loop was able to hear, and no more.

When a timer rings, an answer may lie there that nobody has read: it came in the same turn of the
loop, or while the loop stood still, blocked by a callback or with its process. ``asyncio.timeout``
would throw it away together with the wait for it. Here whoever waits is given a tenth more, which
begins when the loop runs again.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Protocol

_SHARE, _LONGEST = 0.1, 0.5


class Deadlines:
    """``with deadlines.begin(): …`` ends in a :class:`TimeoutError` after so many seconds.

    One timer serves many durations of the same length: what began first is over first. A timer
    for each costs a page a tenth of its time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[Deadline, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> Deadline:
        return Deadline(self)

    def add(self, deadline: Deadline) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # A timer of a loop that is gone never rings.
            self._loop, self._timer, self._running = loop, None, {}
        at = self._running[deadline] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(at, self._ring, loop)

    def remove(self, deadline: Deadline) -> None:
        self._running.pop(deadline, None)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(_moment(self._seconds), self._end, loop)

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        while self._running:
            deadline, at = next(iter(self._running.items()))
            if at > loop.time():
                self._timer = loop.call_at(at, self._ring, loop)
                return
            del self._running[deadline]
            deadline.expire()


def within(seconds: float) -> Deadline:
    """A single duration, in a ``with`` statement."""
    return Deadline(_Alone(seconds))


def strictly(seconds: float) -> Deadline:
    """The same without a moment more, for what must not be begun late."""
    return Deadline(_Alone(seconds, grants_more=False))


class _Alone:
    """A deadline with a timer of its own."""

    def __init__(self, seconds: float, *, grants_more: bool = True) -> None:
        self._seconds = seconds
        self._grants_more = grants_more

    def add(self, deadline: Deadline) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._seconds, self._ring, loop, deadline)

    def remove(self, _: Deadline) -> None:
        self._timer.cancel()

    def _ring(self, loop: asyncio.AbstractEventLoop, deadline: Deadline) -> None:
        if self._grants_more:
            self._timer = loop.call_later(_moment(self._seconds), deadline.expire)
        else:
            deadline.expire()


def _moment(seconds: float) -> float:
    """How much longer to wait, once the time is up."""
    return min(seconds * _SHARE, _LONGEST)


class _Owner(Protocol):
    def add(self, deadline: Deadline) -> None: ...
    def remove(self, deadline: Deadline) -> None: ...


class Deadline:
    __slots__ = ("_cancelling", "_expired", "_owner", "_task")

    def __init__(self, owner: _Owner) -> None:
        self._owner = owner
        self._expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline can only begin inside a task")
        self._task = task
        self._cancelling = task.cancelling()
        self._owner.add(self)

    def expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        """What was cancelled from outside as well stays cancelled."""
        self._owner.remove(self)
        if not self._expired:
            return
        only_by_us = self._task.uncancel() <= self._cancelling
        if only_by_us and kind is asyncio.CancelledError:
            raise TimeoutError from error
