"""A busy event loop must now and then let go of the interpreter, or the writer starves.

A thread asks for the interpreter's lock with some force only after 5 ms without a release. A loop
that always has something to do releases it for an instant in every turn, so the thread is woken,
comes too late, and starts its 5 ms anew: on two cores a transaction of a millisecond then takes
5 s and more. So while somebody waits for the store, the loop sleeps for the shortest time there is,
every millisecond; the same transaction then takes 0.1 s at most, and a loop with time to spare does
not notice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

_EVERY = 0.001
_AN_INSTANT = 1e-6


class Handover:
    """Counts who waits, and keeps a timer on their loop for as long as there is anybody."""

    def __init__(self) -> None:
        self._waiting = 0
        self._ticking_on: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def while_waiting(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        self._waiting += 1
        if self._ticking_on is not loop:
            self._ticking_on = loop
            loop.call_later(_EVERY, self._tick, loop)
        try:
            yield
        finally:
            self._waiting -= 1

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._ticking_on is not loop:
            return
        if not self._waiting:
            self._ticking_on = None
            return
        time.sleep(_AN_INSTANT)
        loop.call_later(_EVERY, self._tick, loop)
