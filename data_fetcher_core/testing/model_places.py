"""Where the requests of the model are, and how they wait there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from data_fetcher_core.core import QueueStats
from data_fetcher_core.testing.model_nouns import Lane, ModelOptions, Request


@dataclass
class Places:
    """The places a request can be in."""

    options: ModelOptions = field(default_factory=ModelOptions)
    now: int = 0
    turn: int = 0
    lanes: dict[str, Lane] = field(default_factory=dict)
    ring: dict[str, int] = field(default_factory=dict)
    parked: dict[str, int] = field(default_factory=dict)
    delayed: list[tuple[int, int, Request]] = field(default_factory=list)
    # By consumer and delivery: one id may be in flight more than once.
    leased: dict[str, dict[int, Request]] = field(default_factory=dict)
    deliveries: int = 0
    dead: list[tuple[int, str, Request]] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    checkpoints: dict[str, Any] = field(default_factory=dict)
    results: list[Any] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    # Lanes to be placed when the step is over, while one is under way that touches several.
    touched: list[str] | None = None

    # --- where requests wait -------------------------------------------------------------------

    def lane(self, name: str) -> Lane:
        return self.lanes.setdefault(name, Lane())

    def next_number(self) -> int:
        self.turn += 1
        return self.turn

    def place(self, name: str) -> None:
        """A lane with something ready is in the ring if it may be served now, else parked."""
        if self.touched is not None:
            self.touched.append(name)
            return
        lane = self.lane(name)
        waits = any(lane.lists.values())
        lane.criticals = lane.criticals if waits else 0
        open_now = waits and lane.gate <= self.now and lane.below_limit(self.options)
        for here, wanted in ((self.ring, open_now), (self.parked, waits and not open_now)):
            if not wanted:
                here.pop(name, None)
            elif name not in here:
                here[name] = self.next_number()

    def make_ready(self, request: Request) -> None:
        request.ready_at = self.now
        self.lane(request.lane).lists[request.priority].append(request)

    def promote(self) -> None:
        """First the lanes whose gates have opened, then the requests that are due."""
        opened = [(x.gate, name) for name, x in self.lanes.items() if 0 < x.gate <= self.now]
        for _, name in sorted(opened, key=lambda pair: (pair[0], pair[1].encode())):
            self.lanes[name].gate = 0
            self.place(name)
        self.delayed.sort(key=lambda waiting: waiting[:2])
        while self.delayed and self.delayed[0][0] <= self.now:
            _, _, request = self.delayed.pop(0)
            self.make_ready(request)
            self.place(request.lane)

    def dropped(self, request: Request) -> bool:
        """A delivery that was cancelled goes no further than its next move."""
        if request.delivery not in self.cancelled:
            return False
        self.cancelled.discard(request.delivery)
        self.totals["cancelled"] += 1
        return True

    # --- looking ---------------------------------------------------------------------------------

    def size(self) -> int:
        return len(self.delayed) + self.ready()

    def ready(self) -> int:
        return sum(len(x) for lane in self.lanes.values() for x in lane.lists.values())

    def stats(self) -> QueueStats:
        return QueueStats(
            ready=self.ready(),
            delayed=len(self.delayed),
            leased=sum(len(mine) for mine in self.leased.values()),
            dead=len(self.dead),
            lanes=len(self.ring) + len(self.parked),
            **self.totals,
        )
