"""One world from its beginning to its end: processes start, things go wrong, all comes to rest."""

from __future__ import annotations

import asyncio
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from data_fetcher_core.queue.consumers import Whereabouts
from data_fetcher_core.queue.transactional_engine import TransactionalEngine
from tests.histories import Event, Recorder, Violation, check
from tests.simulation import sources
from tests.simulation.auditing import audit
from tests.simulation.living import Life, Supply
from tests.simulation.loop import OWNER, Stuck, VirtualLoop, start_in
from tests.simulation.network import RemoteStore, Server
from tests.simulation.plan import LEASE_TTL, TROUBLE, Fault, Plan, Skew
from tests.simulation.process import EPOCH, Process, SkewedClock

# Virtual seconds; a world at peace is at rest after a minute or so.
_UNTIL = 300.0
# A clock may be one in a hundred fast.
_SILENCE = 0.95 * LEASE_TTL
_NOWHERE = Whereabouts("", "", "", 0, "")
_MESSAGE_FAULTS = frozenset({"lost request", "lost reply", "no answer", "late request", "late reply"})


@dataclass(frozen=True, slots=True)
class Result:
    plan: Plan
    violations: tuple[Violation, ...]
    history: tuple[Event, ...]
    trace: str
    figures: Counter[str]
    seconds: float


class World:
    """Everything there is, for one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = VirtualLoop(random.Random(f"lateness {plan.seed}"), _UNTIL)
        self.server = Server(self.loop, random.Random(f"network {plan.seed}"))
        self.recorder = Recorder(self.loop.time)
        self.violations: list[Violation] = []
        self.lives: dict[int, Life] = {}
        self.all: list[Life] = []
        self._supply = Supply(plan)
        self._chance = random.Random(f"deeds {plan.seed}")
        self._finished: set[int] = set()
        self._at_rest = asyncio.Event()

    # --- the whole of it -----------------------------------------------------------------------

    def run(self) -> Result:
        with (
            sources.replaced(
                self.plan.seed, clock_of=_wall_of, here=_here, status=self._status_of
            ),
            self._hearing(),
        ):
            try:
                self.loop.run_until_complete(self._conduct())
            except Stuck as stuck:
                self._tell(Violation("stuck", "", str(stuck)))
            result = self._result()
            _bury(self.loop, [life.process for life in self.all])
        return result

    async def _conduct(self) -> None:
        for number in range(len(self.plan.layout)):
            self._start(number)
        for fault in self.plan.faults:
            self._at(fault.at, lambda fault=fault: self._apply(fault))  # type: ignore[misc]
        self._at(TROUBLE, self._heal)
        await self._at_rest.wait()
        self._note_silences()
        await audit(self.server.data, self.recorder, self._tell, SkewedClock(self.loop, Skew()))

    def _at(self, when: float, act: Callable[[], object]) -> None:
        self.loop.call_at(when, act, context=self.loop.outside)

    def _tell(self, violation: Violation) -> None:
        if len(self.violations) < 20:
            self.violations.append(violation)

    # --- processes -----------------------------------------------------------------------------

    def _start(self, number: int) -> None:
        process = Process(
            number, len(self.all), 1_000 + len(self.all), SkewedClock(self.loop, self.plan.skews[number])
        )
        self.lives[number] = life = Life(
            process,
            RemoteStore(self.server, process),
            self.plan,
            self._supply,
            recorder=self.recorder,
            chance=self._chance,
            die=lambda: self._kill(number, 0.1),
            is_over=self._is_over,
            tell=self._tell,
        )
        self.all.append(life)
        self.server.note(f"start {process.name}")
        start_in(process, self._live(life), process.name)

    async def _live(self, life: Life) -> None:
        try:
            await life.live()
        except Exception as error:  # noqa: BLE001 - a process must not fail, whatever is done to it
            self._tell(Violation("unexpected error", life.process.name, f"{error!r}"))
        life.process.dead = True
        self.recorder.begin("silent", life.process.name)
        self.server.note(f"end {life.process.name}")
        if self._is_over():
            self._finished.add(life.process.number)
            if len(self._finished) == len(self.plan.layout):
                self._at_rest.set()
        else:
            self._at(self.loop.time() + 0.1, lambda: self._start(life.process.number))

    def _is_over(self) -> bool:
        """Nothing will be sent any more, and nothing sent is still on its way."""
        sent = self._supply.is_over and not self.server.on_the_way
        return sent and self.loop.time() >= TROUBLE

    def _kill(self, number: int, away: float) -> None:
        process = self.lives[number].process
        if process.dead:
            return
        process.die()
        self.server.note(f"kill {process.name}")
        self.server.injected["death"] += 1
        self.recorder.begin("silent", process.name)
        for jobs in process.unsent:
            self._supply.on_the_way -= 1
            self._supply.back(jobs)
        self._at(self.loop.time() + away, lambda: self._start(number))

    def _status_of(self, pid: int) -> tuple[str, str] | None:
        alive = any(life.process.place.pid == pid and not life.process.dead for life in self.all)
        return ("S", "1") if alive else None

    # --- what goes wrong -----------------------------------------------------------------------

    def _apply(self, fault: Fault) -> None:
        process = self.lives[fault.who].process
        if process.dead or process.paused:
            return
        self.server.note(fault.kind)
        if fault.kind in _MESSAGE_FAULTS:
            process.message_faults.append(fault)
        else:
            self.server.injected[fault.kind] += 1
            getattr(self, "_" + fault.kind.replace(" ", "_"))(fault, process)

    def _partition(self, fault: Fault, process: Process) -> None:
        process.cut_off_until = self.loop.time() + fault.duration

    def _store_restart(self, fault: Fault, process: Process) -> None:
        self.server.down_until = self.loop.time() + fault.duration

    def _crash(self, fault: Fault, process: Process) -> None:
        self._kill(process.number, fault.duration)

    def _pause(self, fault: Fault, process: Process) -> None:
        process.paused = True
        self._at(self.loop.time() + fault.duration, lambda: self._wake(process))

    def _wake(self, process: Process) -> None:
        process.paused = False
        self.loop.go_on(process)

    def _cancelled_operation(self, fault: Fault, process: Process) -> None:
        process.cuts.append(fault)

    def _cancelled_worker(self, fault: Fault, process: Process) -> None:
        workers = self.lives[fault.who].workers
        if workers:
            workers[fault.count % len(workers)].cancel()

    def _graceful_restart(self, fault: Fault, process: Process) -> None:
        self.lives[fault.who].leave()

    def _heal(self) -> None:
        """What is under way goes on to its end: who is paused wakes as a zombie."""
        for life in self.lives.values():
            life.process.message_faults.clear()
            life.process.cuts.clear()

    # --- who was heard -------------------------------------------------------------------------

    @contextmanager
    def _hearing(self) -> Iterator[None]:
        """Note when a consumer's beat moved in the store: only then does its heart live."""
        plain = TransactionalEngine._count_beat
        loop = self.loop

        def count_beat(engine: TransactionalEngine, step: Any, client: bytes) -> None:
            process = engine._store._process  # type: ignore[attr-defined]
            process.heard.append(loop.time())
            plain(engine, step, client)

        TransactionalEngine._count_beat = count_beat  # type: ignore[method-assign]
        try:
            yield
        finally:
            TransactionalEngine._count_beat = plain  # type: ignore[method-assign]

    def _note_silences(self) -> None:
        for life in self.all:
            heard = life.process.heard
            for before, after in zip(heard, heard[1:], strict=False):
                if after - before >= _SILENCE:
                    self.recorder.events.append(
                        Event("silent", life.process.name, before, after, "done")
                    )

    # --- what is to be told --------------------------------------------------------------------

    def _result(self) -> Result:
        history = tuple(self.recorder.events)
        for event in history:
            self.server.trace.update(repr(event).encode())
        stuck = bool(self.violations)
        found = [] if stuck else check(history)
        figures = Counter(self.server.injected)
        figures["operations"] = sum(life.operator.operations for life in self.all)
        figures["cancellations"] = sum(life.operator.cancelled for life in self.all)
        figures["steps"] = self.server.steps
        figures["deliveries"] = sum(event.verb == "lease" for event in history)
        return Result(
            self.plan,
            (*self.violations, *found),
            history,
            self.server.trace.hexdigest(),
            figures,
            self.loop.time(),
        )


def run(plan: Plan) -> Result:
    return World(plan).run()


def _here() -> Whereabouts:
    owner: Any = OWNER.get()
    return _NOWHERE if owner is None else owner.place


def _wall_of(owner: Any) -> float:
    return EPOCH if owner is None else float(owner.clock.wall())


def _bury(loop: VirtualLoop, processes: list[Process]) -> None:
    """What Python makes the dead do when it throws them away reaches nobody any more."""
    with warnings.catch_warnings(), patch.object(sys, "unraisablehook", lambda _: None):
        warnings.simplefilter("ignore")
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]
        for process in processes:
            process.remains.clear()
            process.stash.clear()
        loop.close()
