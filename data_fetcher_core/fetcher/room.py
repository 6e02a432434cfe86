"""Whether there is room for more requests: a high and a low mark."""

from __future__ import annotations

from dataclasses import dataclass

# What waits for hosts that are slow or shut must not keep locators from bringing others; but
# not without end.
_MOST_TARGETS = 100


@dataclass(frozen=True, slots=True)
class Room:
    """Locators are asked until ``target`` requests are ready, and again when half are left."""

    target: int

    def is_open(self, *, filling: bool, ready: int, idle: bool) -> bool:
        """``idle`` tells that workers have nothing to do although something may be ready."""
        if idle and ready < self.target * _MOST_TARGETS:
            return True
        return ready < self.target if filling else ready <= self.target // 2
