"""The queue as dictionaries and lists: the specification that every engine is compared with.

Read this to know what a queue does. Instants and durations are whole microseconds. Nothing here
is fast, durable or concurrent; each method is one atomic step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from data_fetcher_core.queue.ordering import CRITICAL, Head, choose, next_turn
from data_fetcher_core.testing.model_nouns import Request
from data_fetcher_core.testing.model_places import Places


class Model(Places):
    """The moves of requests between their places."""

    # --- the verbs -----------------------------------------------------------------------------

    def add(
        self, requests: Sequence[Request], checkpoint: dict[str, Any] | None = None
    ) -> list[tuple[str, str]]:
        """Take requests in as far as the capacity goes; all or none with a checkpoint.

        Whoever is told that one found no room brings it again, and all that follow: these are not
        looked at before.
        """
        self.promote()
        room = self.options.capacity - self.size() if self.options.capacity else len(requests)
        fresh = {r.key or id(r) for r in requests if not r.key or r.key not in self.seen}
        if checkpoint is not None and len(fresh) > room:
            return [("full", r.id) for r in requests]
        return self.admit(requests, checkpoint or {}, room)

    def admit(
        self, requests: Iterable[Request], checkpoint: dict[str, Any], room: int
    ) -> list[tuple[str, str]]:
        outcomes: list[tuple[str, str]] = []
        for request in requests:
            if outcomes and outcomes[-1][0] == "full":
                outcomes.append(("full", request.id))
            elif request.key is not None and request.key in self.seen:
                self.totals["duplicates"] += 1
                outcomes.append(("duplicate", self.seen[request.key]))
            elif request.key is not None and 0 < self.options.max_keyed <= self.totals["keyed"]:
                outcomes.append(("over", request.id))
            elif room <= 0:
                outcomes.append(("full", request.id))
            else:
                room -= 1
                self.accept(replace(request))
                outcomes.append(("new", request.id))
        self.checkpoints.update(checkpoint)
        return outcomes

    def accept(self, request: Request) -> None:
        self.totals["enqueued"] += 1
        if request.key is not None:
            self.totals["keyed"] += 1
            self.seen[request.key] = request.id
        request.expires_at = self.now + request.expires_in if request.expires_in else 0
        self.wait_or_ready(request, request.delay)

    def wait_or_ready(self, request: Request, delay: int) -> None:
        if delay > 0:
            self.delayed.append((self.now + delay, self.next_number(), request))
        else:
            self.make_ready(request)
            self.place(request.lane)

    def lease(
        self,
        consumer: str,
        want: int,
        lanes: Sequence[str] | None = None,
        steal: Sequence[str] = (),
    ) -> list[Request]:
        """One by one: the lane at the front gives one request and goes to the back."""
        self.promote()
        mine = self.leased.setdefault(consumer, {})
        granted: list[Request] = []
        passed: set[str] = set()
        while len(granted) < want and not any(self.is_suspect(r) for r in mine.values()):
            name = self.front(lanes, steal, passed)
            if name is None:
                break
            request = self.first(name)
            if request is not None and self.is_suspect(request) and mine:
                passed.add(name)
            elif request is not None:
                granted.append(self.grant(name, request, mine))
        return granted

    def is_suspect(self, request: Request) -> bool:
        """One death from the limit: held alone, so that no neighbour dies with it."""
        return request.deaths >= self.options.max_deaths - 1

    def front(
        self, lanes: Sequence[str] | None, steal: Sequence[str], passed: set[str]
    ) -> str | None:
        for allowed in (self.ring, steal) if lanes is None else (lanes, steal):
            names = [n for n in self.ring if n in allowed and n not in passed]
            if names:
                return min(names, key=self.ring.__getitem__)
        return None

    def first(self, name: str) -> Request | None:
        """The lane's next request; one that is too old goes away instead."""
        lane = self.lane(name)
        waiting = [Head(p, x[0].ready_at) for p, x in lane.lists.items() if x]
        burst, step = self.options.critical_burst, self.options.ageing_step
        head = choose(waiting, step, burst, lane.criticals)
        request = lane.lists[head.priority][0]
        if self.expired(request):
            del lane.lists[head.priority][0]
            self.place(name)
            return None
        return request

    def expired(self, request: Request) -> bool:
        if not 0 < request.expires_at <= self.now:
            return False
        self.bury(request, "expired")
        return True

    def grant(self, name: str, request: Request, mine: dict[int, Request]) -> Request:
        lane = self.lane(name)
        lane.lists[request.priority].remove(request)
        lane.criticals = lane.criticals + 1 if request.priority == CRITICAL else 0
        lane.in_flight += 1
        self.deliveries += 1
        request.delivery = self.deliveries
        mine[request.delivery] = request
        pace = lane.pace(self.options)
        if pace.interval:
            lane.arrival, gate = next_turn(self.now, lane.arrival, pace)
            lane.gate = max(lane.gate, gate)
        self.ring.pop(name)
        self.place(name)
        return request

    def bury(self, request: Request, reason: str) -> None:
        self.dead.append((self.now, reason, request))
        self.totals["buried"] += 1

    def take_back(self, consumer: str, delivery: int) -> Request | None:
        request = self.leased.get(consumer, {}).pop(delivery, None)
        if request is not None:
            self.lane(request.lane).in_flight -= 1
        return request

    def complete(
        self,
        consumer: str,
        delivery: int,
        children: Sequence[Request] = (),
        checkpoint: dict[str, Any] | None = None,
        result: Any = None,
    ) -> bool:
        """Done, with all that it brings."""

        def go(_: Request) -> None:
            self.cancelled.discard(delivery)
            self.results += [] if result is None else [result]
            self.totals["completed"] += 1

        return self.with_children(consumer, delivery, children, checkpoint or {}, go)

    def drop(self, consumer: str, delivery: int, checkpoint: dict[str, Any]) -> bool:
        def go(_: Request) -> None:
            self.cancelled.discard(delivery)
            self.totals["cancelled"] += 1

        return self.with_children(consumer, delivery, (), checkpoint, go)

    def progress(
        self,
        consumer: str,
        delivery: int,
        children: Sequence[Request],
        checkpoint: dict[str, Any],
    ) -> bool:
        """A part is done: it goes on from the front of its place, as if nothing ever failed."""

        def go(request: Request) -> None:
            request.attempts = request.deaths = 0
            if not self.dropped(request):
                self.lane(request.lane).lists[request.priority].insert(0, request)

        return self.with_children(consumer, delivery, children, checkpoint, go)

    def with_children(
        self,
        consumer: str,
        delivery: int,
        children: Sequence[Request],
        checkpoint: dict[str, Any],
        go: Callable[[Request], None],
    ) -> bool:
        """One step: the children enter, the lease ends. Lanes are placed at its end."""
        request = self.leased.get(consumer, {}).get(delivery)
        if request is None:
            return False
        self.touched = []
        self.admit(children, checkpoint, len(children))
        self.take_back(consumer, delivery)
        go(request)
        touched, self.touched = dict.fromkeys([*self.touched, request.lane]), None
        for name in touched:
            self.place(name)
        return True

    def settle(self, consumer: str, delivery: int, go: Callable[[Request], None]) -> bool:
        """Take a lease back and let its request go on, unless it was cancelled."""
        request = self.take_back(consumer, delivery)
        if request is None:
            return False
        if not self.dropped(request):
            go(request)
        self.place(request.lane)
        return True

    def note_failure(self, request: Request, failure: str) -> None:
        request.attempts += 1
        request.failures = [*request.failures, failure][-5:]

    def release(
        self, consumer: str, delivery: int, delay: int, failure: str, priority: int | None = None
    ) -> bool:
        def go(request: Request) -> None:
            self.note_failure(request, failure)
            request.priority = priority or request.priority
            self.totals["retried"] += 1
            self.wait_or_ready(request, delay)

        return self.settle(consumer, delivery, go)

    def give_up(self, consumer: str, delivery: int, failure: str) -> bool:
        def go(request: Request) -> None:
            self.note_failure(request, failure)
            self.bury(request, "failed")

        return self.settle(consumer, delivery, go)

    def give_back(self, consumer: str, delivery: int) -> bool:
        def go(request: Request) -> None:
            self.lane(request.lane).lists[request.priority].insert(0, request)

        return self.settle(consumer, delivery, go)

    def leave(self, consumer: str) -> None:
        """Everything a consumer holds goes back to where it came from."""
        for delivery in reversed(list(self.leased.get(consumer, {}))):
            self.give_back(consumer, delivery)
        self.leased.pop(consumer, None)

    def reap(self, consumer: str) -> None:
        """Everything a dead consumer held is ready again, one death older, or poisoned."""
        for request in list(self.leased.get(consumer, {}).values()):
            self.take_back(consumer, request.delivery)
            request.deaths += 1
            if self.dropped(request):
                pass
            elif request.deaths >= self.options.max_deaths:
                self.bury(request, "poisoned")
            else:
                self.make_ready(request)
            self.place(request.lane)
        self.leased.pop(consumer, None)

    # --- lanes, dead letters, looking --------------------------------------------------------

    def shut(self, name: str, duration: int) -> None:
        lane = self.lane(name)
        lane.gate = max(lane.gate, self.now + duration)
        self.place(name)

    def reopen(self, name: str) -> None:
        lane = self.lane(name)
        lane.gate = lane.arrival = 0
        self.place(name)

    def set_lane(self, name: str, interval: int, burst: int, limit: int) -> None:
        lane = self.lane(name)
        lane.interval, lane.burst, lane.limit = interval, burst, limit
        self.place(name)

    def requeue(self, ids: Sequence[str]) -> int:
        chosen = [letter for letter in self.dead if letter[2].id in ids]
        self.dead = [letter for letter in self.dead if letter[2].id not in ids]
        for _, _, request in chosen:
            request.attempts = request.deaths = request.expires_at = 0
            self.make_ready(request)
            self.place(request.lane)
        self.totals["requeued"] += len(chosen)
        return len(chosen)

    def purge(self, older_than: int) -> int:
        kept = [letter for letter in self.dead if letter[0] > self.now - older_than]
        gone = len(self.dead) - len(kept)
        self.dead = kept
        self.totals["purged"] += gone
        return gone

    def cancel(self, ids: Sequence[str]) -> int:
        """Waiting requests go at once, leased ones at their next move."""
        gone = 0
        for name, lane in self.lanes.items():
            before = gone
            for priority, waiting in lane.lists.items():
                lane.lists[priority] = [r for r in waiting if r.id not in ids]
                gone += len(waiting) - len(lane.lists[priority])
            if gone > before:
                self.place(name)
        staying = [waiting for waiting in self.delayed if waiting[2].id not in ids]
        gone += len(self.delayed) - len(staying)
        self.delayed = staying
        self.totals["cancelled"] += gone
        held = {n for mine in self.leased.values() for n, r in mine.items() if r.id in ids}
        self.cancelled |= held
        return gone + len(held)

    def forget_keys_of(self, ids: Sequence[str]) -> None:
        """What `cancel(forget=True)` adds: the keys of what waits or is held may come again."""
        waiting = [r for lane in self.lanes.values() for x in lane.lists.values() for r in x]
        waiting += [r for _, _, r in self.delayed]
        held = [r for mine in self.leased.values() for r in mine.values()]
        for request in (*waiting, *held):
            if request.id in ids and request.key is not None:
                self.seen.pop(request.key, None)

    def clear(self) -> int:
        gone = self.size()
        for lane in self.lanes.values():
            lane.lists = {p: [] for p in range(1, 7)}
        self.ring, self.parked, self.delayed, self.seen = {}, {}, [], {}
        self.totals["cleared"] += gone
        return gone

    def peek(self, want: int) -> list[Request]:
        """Lease order, as if every lane were open."""
        queues = {n: self.lane(n).in_order(self.options) for n in (*self.ring, *self.parked)}
        order = sorted(queues, key=lambda name: {**self.ring, **self.parked}[name])
        shown: list[Request] = []
        while any(queues.values()):
            shown += [queues[name].pop(0) for name in order if queues[name]]
        return shown[: max(want, 0)]
