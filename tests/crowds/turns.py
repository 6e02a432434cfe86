"""Many lanes, of which one is far too full: who is served when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from data_fetcher_core import Entry
from data_fetcher_core.queue import KVStoreQueue
from tests.evidence import Evidence
from tests.test_order import jain

FAULT = "F49"
BATCH = 1_000
FULL = "full"
# Who is never served at all shall not keep a test from its end.
_PATIENCE = 3
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Turns:
    """Waits are in rounds."""

    lanes: int
    rounds: int
    lanes_served: int
    newcomers: int
    served: int
    served_of_full: int
    fairness: float
    longest_wait: float
    newcomers_wait: float


class Order:
    """The lanes in the order in which they are served, and where in it newcomers came."""

    def __init__(self, lanes: int, each: int) -> None:
        self._lanes = lanes
        self._each = each
        self._came_at: dict[str, int] = {}
        self.served: list[str] = []
        self.left = (lanes - 1) * each

    @property
    def goes_on(self) -> bool:
        return self.left > 0 and len(self.served) < _PATIENCE * self._lanes * self._each

    def next_newcomer(self) -> str | None:
        """One after every round but the last."""
        if len(self._came_at) >= min(self._each - 1, len(self.served) // self._lanes):
            return None
        name = f"newcomer {len(self._came_at)}"
        self._came_at[name] = len(self.served)
        self.left += 1
        return name

    def note(self, taken: list[str]) -> None:
        self.served += taken
        self.left -= sum(lane != FULL for lane in taken)

    def turns(self) -> Turns:
        return Turns(
            lanes=self._lanes,
            rounds=self._each,
            lanes_served=len(set(self.served) - self._came_at.keys()),
            newcomers=len(self._came_at),
            served=len(self.served),
            served_of_full=self.served.count(FULL),
            fairness=jain(self._shares()),
            longest_wait=self._longest_wait() / self._lanes,
            newcomers_wait=self._newcomers_wait() / self._lanes,
        )

    def _shares(self) -> list[int]:
        """What each got while all had something; later on, all but one are empty."""
        shares = Counter(self.served[: self._lanes * self._each])
        served = [count for lane, count in shares.items() if lane not in self._came_at]
        return served + [0] * (self._lanes - len(served))

    def _longest_wait(self) -> int:
        last, longest = {**self._came_at}, 0
        for at, lane in enumerate(self.served):
            longest = max(longest, at - last.get(lane, -1))
            last[lane] = at
        return longest

    def _newcomers_wait(self) -> int:
        """Who was not served has waited until now."""
        first = {lane: at for at, lane in reversed(list(enumerate(self.served)))}
        now = len(self.served)
        return max(first.get(lane, now) - at for lane, at in self._came_at.items())


async def fill(queue: KVStoreQueue, lane: str, count: int, tell: Tell) -> None:
    """So many in one lane; each is the name of its lane."""
    for done in range(0, count, BATCH):
        await queue.enqueue([lane] * min(BATCH, count - done), lane=lane)
        tell(f"lane {lane}: {done:,} of {count:,} came")


async def fill_others(queue: KVStoreQueue, lanes: int, each: int) -> None:
    """All lanes but the one that is full."""
    names = [str(n) for n in range(1, lanes)]
    await queue.enqueue(Entry(name, lane=name) for name in names for _ in range(each))


async def take_turns(queue: KVStoreQueue, lanes: int, each: int, tell: Tell) -> Turns:
    """Serve until all lanes are empty but the full one; after every round a newcomer comes."""
    order = Order(lanes, each)
    while order.goes_on:
        if (newcomer := order.next_newcomer()) is not None:
            await queue.enqueue([newcomer], lane=newcomer)
        order.note(await queue.dequeue(min(BATCH, lanes)))
        tell(f"turns: {len(order.served):,} served, {order.left:,} left in {lanes:,} lanes")
    return order.turns()


def show_turns(shows: Evidence, turns: Turns, where: str = "") -> None:
    shows(FAULT, f"lanes that were served{where}", turns.lanes_served, exactly=turns.lanes)
    rounds, fairness = f"Jain's index over {turns.rounds} rounds{where}", round(turns.fairness, 4)
    shows(FAULT, rounds, fairness, at_least=0.95)
    longest, newcomers = round(turns.longest_wait, 2), round(turns.newcomers_wait, 2)
    shows(FAULT, f"rounds that anybody waited for a turn{where}", longest, at_most=2)
    shows(FAULT, f"rounds that a newcomer waited{where}", newcomers, at_most=2)
