"""Whether the store still knows what it has acknowledged.

A server that was restored from an older state, or a replica that had not heard the last of its
master, goes on as if nothing had been. Our own beat tells: it grows with everything we add, lease
and settle, so after so many answers it must have grown by at least as many.
"""

from __future__ import annotations


class StoreMemory:
    """Counts what this consumer was told is done, from one beat to the next."""

    def __init__(self) -> None:
        self._period = 0
        self._steps = 0
        self._told = 0
        self._first: int | None = None

    def mark(self) -> tuple[int, int]:
        """To be taken before something is sent: when that was, and the steps until then."""
        return self._period, self._steps

    def acknowledge(self, mark: tuple[int, int]) -> None:
        """An addition, a lease or a settlement was answered."""
        # Sent before the last beat was heard, it may have been counted by that one.
        self._steps += mark[0] == self._period

    def compare(self, mark: tuple[int, int], told: int) -> int:
        """How many steps at least are missing from what a beat says.

        A consumer that was reaped begins again at the store's instant. That is beyond all it was
        told, or below the first of it if the store's clock was set back: neither is told as
        missing. Of two beats at a time the second says nothing.
        """
        period, steps = mark
        if period != self._period:
            return 0
        expected, is_anew = self._told + steps + 1, self._first is None or told < self._first
        self._period, self._steps, self._told = period + 1, 0, told
        if is_anew:
            self._first = told
            return 0
        return max(expected - told, 0)
