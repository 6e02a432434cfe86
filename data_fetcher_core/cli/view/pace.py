"""How fast it goes: over the last seconds, and since the beginning."""

from __future__ import annotations

from collections import deque

_SPAN = 10.0
_BETWEEN = 0.5
# A rate over less than this says nothing.
_SHORTEST = 1.0


class Pace:
    """Samples of a number that grows, as many as the last seconds need."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._first: tuple[float, int] | None = None

    def sample(self, now: float, done: int) -> None:
        if self._samples and now - self._samples[-1][0] < _BETWEEN:
            return
        self._first = self._first or (now, done)
        self._samples.append((now, done))
        # The one at the far end stays until the next is old enough to take its place.
        while len(self._samples) > 1 and now - self._samples[1][0] >= _SPAN:
            self._samples.popleft()

    def recent(self, now: float, done: int) -> float | None:
        """Per second, over the last ten; ``None`` until that can be told."""
        return _rate(self._samples[0], now, done) if self._samples else None

    def average(self, now: float, done: int) -> float | None:
        return None if self._first is None else _rate(self._first, now, done)


def _rate(since: tuple[float, int], now: float, done: int) -> float | None:
    at, had = since
    return max(0, done - had) / (now - at) if now - at >= _SHORTEST else None
