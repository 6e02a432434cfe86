"""A world of workers around one queue."""

from __future__ import annotations

from collections.abc import Sequence

from tests.histories import Event, Violation, check
from tests.simulation.auditing import audit
from tests.simulation.living import QueueLife, Supply
from tests.simulation.network import RemoteStore
from tests.simulation.plan import TROUBLE, Plan, Skew
from tests.simulation.process import Process, SkewedClock
from tests.simulation.world import World


class QueueWorld(World):
    """Producers, workers and onlookers; the history of all they did is checked."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._supply = Supply(plan)

    def make_life(self, process: Process) -> QueueLife:
        return QueueLife(
            process,
            RemoteStore(self.server, process),
            self.plan,
            self._supply,
            recorder=self.recorder,
            chance=self.chance,
            die=lambda: self.kill(process.number, 0.1),
            is_over=self._is_over,
            tell=self.tell,
        )

    def _is_over(self) -> bool:
        """Nothing will be sent any more, and nothing sent is still on its way."""
        sent = self._supply.is_over and not self.server.on_the_way
        return sent and self.loop.time() >= TROUBLE

    def bereave(self, process: Process) -> None:
        for jobs in process.unsent:
            self._supply.on_the_way -= 1
            self._supply.back(jobs)

    async def audit(self) -> None:
        await audit(self.server.data, self.recorder, self.tell, SkewedClock(self.loop, Skew()))

    def judge(self, history: Sequence[Event]) -> Sequence[Violation]:
        return check(history)
