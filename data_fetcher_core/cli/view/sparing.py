"""Lines of one kind are shown a few at a time; the others are counted."""

from __future__ import annotations

from collections import Counter

_MOST = 5
_SPAN = 10.0


class Sparing:
    """Lets through ``most`` lines of each kind in a span of seconds."""

    def __init__(self, most: int = _MOST, span: float = _SPAN) -> None:
        self._most = most
        self._span = span
        self._begun: dict[str, float] = {}
        self._shown: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def lets(self, kind: str, now: float) -> bool:
        if now - self._begun.get(kind, -self._span) >= self._span:
            self._begun[kind] = now
            self._shown[kind] = 0
        self._shown[kind] += 1
        if self._shown[kind] <= self._most:
            return True
        self._left_out[kind] += 1
        return False

    def left_out(self) -> dict[str, int]:
        """How many were not shown since this was asked last, by kind."""
        counted, self._left_out = dict(self._left_out), Counter()
        return counted
