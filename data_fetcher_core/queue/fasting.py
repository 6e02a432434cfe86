"""Taking nothing new for a while, so that a request that must be leased alone gets its turn.

Such a request is passed over by everybody who holds something, and its lane with it. A process
that is always busy would pass it over for ever: so now and then one stops leasing until what it
holds is settled. That costs the others little, for it is bounded, and seldom.
"""

from __future__ import annotations

import math

_PATIENCE = 2.0
_LONGEST = 5.0
_REST = 30.0


class Fasting:
    """Whether to lease nothing now. Instants are of one monotonic clock."""

    def __init__(self) -> None:
        self._passed_since = math.inf
        self._not_before = -math.inf

    def heard(self, now: float, *, passed_over: bool, held_any: bool) -> None:
        """What a lease answered. Who held nothing has passed over nothing."""
        if not (passed_over and held_any):
            self._passed_since = math.inf
        elif self._passed_since == math.inf:
            self._passed_since = now

    def is_on(self, now: float, *, holds_any: bool) -> bool:
        begun = max(self._passed_since + _PATIENCE, self._not_before)
        if not holds_any or now < begun:
            return False
        if now >= begun + _LONGEST:
            # Something takes long: others may be faster, and we try again later.
            self._passed_since, self._not_before = math.inf, now + _REST
            return False
        return True
