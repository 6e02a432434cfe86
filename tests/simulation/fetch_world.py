"""A world in which several processes work on one run with the fetcher, are killed, and resume."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from data_fetcher_core.errors import StoreError
from data_fetcher_core.fetcher import Fetcher
from data_fetcher_core.fetcher.options import FetcherOptions
from data_fetcher_core.fetcher.stopping import Stop
from data_fetcher_core.queue import KVStoreQueue, QueueOptions, RequestMetaSerializer
from data_fetcher_core.retry import FixedDelays
from tests.fetching import plan_of
from tests.histories import UNKNOWN, Event, Violation
from tests.simulation.network import RemoteStore
from tests.simulation.plan import LEASE_TTL, Plan, Skew
from tests.simulation.process import Process, SkewedClock
from tests.simulation.site import SharedIndex, Site, SiteLoader, SiteLocator
from tests.simulation.world import World

_RUN = "sim"
_GOODBYE = 2.5


class FetchLife:
    """One call of ``Fetcher.run``, as a supervisor starts it again and again."""

    def __init__(self, world: FetchWorld, process: Process) -> None:
        self.process = process
        self.workers: list[asyncio.Task[Any]] = []
        self._world = world
        self._stop = Stop()
        self._finished = False

    def leave(self) -> None:
        self._stop.ask()

    def figures(self) -> dict[str, int]:
        return {"runs": 1}

    async def live(self) -> bool:
        """The run, in a task of its own so that it can be cancelled."""
        run = asyncio.get_running_loop().create_task(self._run())
        self.workers.append(run)
        await asyncio.wait([run])
        if not run.cancelled():
            run.result()
        return self._finished

    async def _run(self) -> None:
        world, process = self._world, self.process
        locator = SiteLocator(world.site, process, world.recorder)
        plan = plan_of(
            RemoteStore(world.server, process),
            [locator],
            SiteLoader(world.site, process, world.recorder, world.chance),
            run_id=_RUN,
            storage=world.index,
            concurrency=world.plan.layout[process.number],
            target_queue_size=8,
        )
        fetcher = Fetcher(_OPTIONS, clock=process.clock, subscriber=lambda _: None)
        with suppress(StoreError):
            result = await fetcher.run(plan, self._stop)
            # Who was asked to go gave back what it could not settle in time, and was not the last.
            self._finished = result.is_finished and not self._stop.is_asked


_OPTIONS = FetcherOptions(
    queue=QueueOptions(
        lease_ttl=LEASE_TTL, op_timeout=2.0, retry=FixedDelays((0.2, 0.5)), max_deaths=50
    ),
    request_timeout=30.0,
    locator_timeout=30.0,
    grace=0.5,
)


class FetchWorld(World):
    """Every page at least once, none lost, none again but what was in flight."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.site = Site(self.chance, max(1, len(plan.jobs)))
        self.index = SharedIndex()

    def make_life(self, process: Process) -> FetchLife:
        return FetchLife(self, process)

    def bereave(self, process: Process) -> None:
        """The site and the index are not of this world."""

    async def audit(self) -> None:
        queue = KVStoreQueue(
            self.server.data,
            f"fetch:{_RUN}",
            RequestMetaSerializer(),
            clock=SkewedClock(self.loop, Skew()),
            subscriber=lambda _: None,
        )
        wrong, stats = await queue.recount(), await queue.stats()
        if wrong or stats.unaccounted:
            self.tell(Violation("the account does not balance", "", f"{dict(wrong)} {stats}"))
        if stats.size or stats.leased or stats.dead:
            self.tell(Violation("ended before it was drained", "", str(stats)))
        await queue.close()
        self._compare_index()

    def _compare_index(self) -> None:
        written = Counter(str(line["url"]) for line in self.index.lines.values())
        for name in self.site.pages:
            if written[name] != 1:
                self.tell(Violation("in the index", name, f"{written[name]} times"))
        for name in set(written) - set(self.site.pages):
            self.tell(Violation("appeared", name, "in the index, and not on the site"))

    def judge(self, history: Sequence[Event]) -> Sequence[Violation]:
        return [Violation("fetched again", *told) for told in fetched_again(history)]


def fetched_again(history: Sequence[Event]) -> Iterator[tuple[str, str]]:
    """Loads and questions that no death, silence or failure explains."""
    of: dict[str, list[Event]] = defaultdict(list)
    ends: dict[str, list[Event]] = defaultdict(list)
    for event in history:
        if event.verb == "silent":
            ends[event.who].append(event)
        elif event.verb in {"load", "ask"}:
            of[event.request].append(event)
    for name, events in of.items():
        for first, second in itertools.pairwise(events):
            excused = _is_a_zombie(ends[second.who], first, second) or _was_interrupted(
                ends[first.who], first, second
            )
            if first.outcome != UNKNOWN and not excused:
                yield name, f"by {first.who}, and at {second.start:.6f} by {second.who}"


def _is_a_zombie(silences: Sequence[Event], first: Event, second: Event) -> bool:
    """Whether the second is in a silence that began before the first: it goes on where it was."""
    return any(
        silence.start < first.start and silence.end is not None and second.start <= silence.end
        for silence in silences
    )


def _was_interrupted(silences: Sequence[Event], first: Event, second: Event) -> bool:
    """Whether the first holder was gone, or silent, at some moment until the second began.

    A run that fails because the store is away gives back first, and takes its time to end.
    """
    return any(
        silence.start <= second.start + _GOODBYE * (silence.outcome == UNKNOWN)
        and (silence.end is None or silence.end > first.start)
        for silence in silences
    )
