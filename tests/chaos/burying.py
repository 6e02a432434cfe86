"""Who was buried though it is no poison: unlucky, or harmed by a neighbour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tests.chaos.explaining import KILLED, Chronicle, Delivery

# Between the clock of the store and that of the ledgers.
_SKEW = 0.1


class Burials:
    """What was one death from its end is held alone: only a kill from outside may bury it."""

    def __init__(
        self,
        deliveries: Mapping[str, list[Delivery]],
        chronicle: Chronicle,
        buried_at: Mapping[str, float],
        max_deaths: int,
    ) -> None:
        self._deliveries = deliveries
        self._chronicle = chronicle
        self._buried_at = buried_at
        self._max_deaths = max_deaths
        self._kept: dict[str, set[str]] = defaultdict(set)
        for name, several in deliveries.items():
            for one in several:
                if one.surely_kept:
                    self._kept[one.process].add(name)

    def was_unlucky(self, name: str) -> bool:
        """Whether who held it last was killed from outside, and held nothing else."""
        several = self._deliveries.get(name, [])
        deaths = [one for one in several if self._died_with(one)]
        if len(deaths) >= self._max_deaths:
            return self._was_killed_with(deaths[-1].process, name)
        # Some died with it before they could note that they held it.
        return any(self._was_killed_with(process, name) for process in self._reaped_for(name))

    def _died_with(self, delivery: Delivery) -> bool:
        return delivery.process in self._chronicle.died and not delivery.surely_ended

    def _was_killed_with(self, process: str, name: str) -> bool:
        cause = self._chronicle.died[process][1]
        return cause == KILLED and self._kept.get(process, set()) <= {name}

    def _reaped_for(self, name: str) -> list[str]:
        """Those who had died when it was buried, and were noted as taken up after."""
        at, died = self._buried_at.get(name), self._chronicle.died
        if at is None:
            return []
        return [
            process
            for process, reaped in self._chronicle.reaped.items()
            if process in died and died[process][0] - _SKEW <= at <= reaped + _SKEW
        ]
