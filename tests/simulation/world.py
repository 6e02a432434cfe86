"""One world from its beginning to its end: processes start, things go wrong, all comes to rest."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol
from unittest.mock import patch

from anyio._backends._asyncio import _task_states

from data_fetcher_core.errors import DataFetcherError
from data_fetcher_core.queue import settling, sweeping
from data_fetcher_core.queue.consumers import Whereabouts
from data_fetcher_core.queue.transactional_engine import TransactionalEngine
from tests.histories import DONE, UNKNOWN, Event, Recorder, Violation
from tests.simulation import sources
from tests.simulation.loop import OWNER, Stuck, VirtualLoop, start_in
from tests.simulation.network import Server
from tests.simulation.plan import SILENCE, TROUBLE, Fault, Plan
from tests.simulation.process import EPOCH, Process, SkewedClock
from tests.simulation.rules import CRASHED, STUCK

# Virtual seconds; a world at peace is at rest after half a minute or so.
_UNTIL = 120.0
_MOST_TOLD = 20
_NOWHERE = Whereabouts("", "", "", 0, "")
_MESSAGE_FAULTS = frozenset(
    {"lost request", "lost reply", "no answer", "late request", "late reply", "aborted step"}
)


@dataclass(frozen=True, slots=True)
class Result:
    """``trace`` is the same for two worlds in which the same happened."""

    plan: Plan
    violations: tuple[Violation, ...]
    history: tuple[Event, ...]
    trace: str
    figures: Counter[str]
    seconds: float


class Life(Protocol):
    """One process from its start to its end."""

    process: Process

    @property
    def workers(self) -> Sequence[asyncio.Task[Any]]: ...

    async def live(self) -> bool:
        """Whether there is nothing left to do."""

    def leave(self) -> None:
        """Asks it to go."""

    def figures(self) -> dict[str, int]: ...


class World(ABC):
    """Everything there is, for one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = VirtualLoop(random.Random(f"lateness {plan.seed}"), _UNTIL)
        self.server = Server(self.loop, random.Random(f"network {plan.seed}"))
        self.recorder = Recorder(self.loop.time)
        self.chance = random.Random(f"deeds {plan.seed}")
        self.violations: list[Violation] = []
        self.lives: dict[int, Life] = {}
        self.all: list[Life] = []
        self._finished: set[int] = set()
        self._at_rest = asyncio.Event()

    @abstractmethod
    def make_life(self, process: Process) -> Life: ...

    @abstractmethod
    async def audit(self) -> None:
        """Look at what there is when all is at rest."""

    @abstractmethod
    def judge(self, history: Sequence[Event]) -> Sequence[Violation]:
        """What it shows that must not be."""

    @abstractmethod
    def bereave(self, process: Process) -> None:
        """A process died; what it had begun outside of itself is taken up."""

    # --- the whole of it -----------------------------------------------------------------------

    def run(self) -> Result:
        with (
            sources.replaced(
                self.plan.seed, clock_of=self._wall_of, here=_here, status=self._status_of
            ),
            self._hearing(),
            self._noticing_hearts_that_fail(),
        ):
            try:
                self.loop.run_until_complete(self._conduct())
            except Stuck as stuck:
                self.tell(Violation(STUCK, "", str(stuck)))
            result = self._result()
            _bury(self.loop, self.all)
        return result

    async def _conduct(self) -> None:
        for number in range(len(self.plan.layout)):
            self._start(number)
        for fault in self.plan.faults:
            self.at(fault.at, lambda fault=fault: self._apply(fault))  # type: ignore[misc]
        self.at(TROUBLE, self._heal)
        await self._at_rest.wait()
        try:
            await self.audit()
        except Exception as error:  # noqa: BLE001 - it is looked at like all that crashes
            self._tell_of_crash("", "the audit", error)

    def at(self, when: float, act: Callable[[], object]) -> None:
        self.loop.call_at(when, act, context=self.loop.outside)

    def tell(self, violation: Violation) -> None:
        if not self._has_told_enough:
            self.violations.append(violation)

    def _tell_of_crash(self, name: str, what: str, error: Exception) -> None:
        self.tell(Violation(CRASHED, name, f"{what}: {error!r}"))

    @property
    def _has_told_enough(self) -> bool:
        return len(self.violations) >= _MOST_TOLD

    def _result(self) -> Result:
        self._note_silences()
        history = tuple(self.recorder.events)
        for event in history:
            self.server.trace.update(repr(event).encode())
        figures = Counter(self.server.injected)
        figures["steps of the store"] = self.server.steps
        for life in self.all:
            figures.update(life.figures())
        violations = (*self.violations, *self.judge(history))
        trace = self.server.trace.hexdigest()
        return Result(self.plan, violations, history, trace, figures, self.loop.time())

    # --- processes -----------------------------------------------------------------------------

    def _start(self, number: int) -> None:
        born = len(self.all)
        clock = SkewedClock(self.loop, self.plan.skews[number])
        process = Process(number, born, 1_000 + born, clock)
        self.lives[number] = life = self.make_life(process)
        self.all.append(life)
        self.server.note(f"start {process.name}")
        start_in(process, self._live(life), process.name)

    async def _live(self, life: Life) -> None:
        process, is_over = life.process, False
        try:
            is_over = await life.live()
        except Exception as error:  # noqa: BLE001 - a process must not fail, whatever is done to it
            self._tell_of_crash(process.name, "its process", error)
        process.dead = True
        self.recorder.begin("silent", process.name, outcome=DONE if is_over else UNKNOWN)
        self.server.note(f"end {process.name}")
        # Where all crash again and again, ever more dead ones would be judged by ever new ones.
        if is_over or self._has_told_enough:
            self._finish(process.number)
        else:
            self.at(self.loop.time() + 0.1, lambda: self._start(process.number))

    def _finish(self, number: int) -> None:
        self._finished.add(number)
        if len(self._finished) == len(self.plan.layout):
            self._at_rest.set()

    def kill(self, number: int, away: float) -> None:
        process = self.lives[number].process
        if process.dead:
            return
        process.die()
        self.server.note(f"kill {process.name}")
        self.server.injected["death"] += 1
        self.recorder.begin("silent", process.name)
        self.bereave(process)
        self.at(self.loop.time() + away, lambda: self._start(number))

    def _status_of(self, pid: int) -> tuple[str, str] | None:
        alive = any(life.process.place.pid == pid and not life.process.dead for life in self.all)
        return ("S", "1") if alive else None

    def _wall_of(self, owner: Any) -> float:
        return EPOCH + self.loop.time() if owner is None else float(owner.clock.wall())

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
        self._now_or_unheard(fault, process, lambda: self.kill(process.number, fault.duration))

    def _pause(self, fault: Fault, process: Process) -> None:
        self._now_or_unheard(fault, process, lambda: self._stop(fault, process))

    def _now_or_unheard(self, fault: Fault, process: Process, act: Callable[[], None]) -> None:
        """Now; or once the store has done something for it, and before it hears of that."""
        if fault.count % 2:
            process.unheard.append(act)
        else:
            act()

    def _stop(self, fault: Fault, process: Process) -> None:
        if not process.dead:
            process.paused = True
            self.at(self.loop.time() + fault.duration, lambda: self._wake(process))

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
        """Note when a consumer's beat moved in the store, for only then does its heart live; and
        that it has left, for then the store knows nothing of it any more."""
        plain, now, leave = TransactionalEngine._count_beat, self.loop.time, settling.leave

        def count_beat(engine: Any, step: Any, client: bytes) -> None:
            engine._store.process.heard.append(now())
            plain(engine, step, client)

        def leave_for_good(step: Any, client: bytes) -> Any:
            process: Any = OWNER.get()
            if process is not None:  # who audits is nobody's process
                process.has_left = True
            return leave(step, client)

        with (
            patch.object(TransactionalEngine, "_count_beat", count_beat),
            patch.object(settling, "leave", leave_for_good),
        ):
            yield

    @contextmanager
    def _noticing_hearts_that_fail(self) -> Iterator[None]:
        """A heart goes on whatever happens to it: what fails there would show nowhere else."""
        plain = sweeping.Heart.beat

        async def beat(heart: Any) -> None:
            try:
                await plain(heart)
            except Exception as error:
                if not isinstance(error, DataFetcherError):
                    self._tell_of_crash("", "a heart", error)
                raise

        with patch.object(sweeping.Heart, "beat", beat):
            yield

    def _note_silences(self) -> None:
        for life in self.all:
            name, heard = life.process.name, [*life.process.heard, self.loop.time()]
            for before, after in itertools.pairwise(heard):
                if after - before >= SILENCE:
                    self.recorder.events.append(Event("silent", name, before, after, "done"))


def _here() -> Whereabouts:
    owner: Any = OWNER.get()
    return _NOWHERE if owner is None else owner.place


def _bury(loop: VirtualLoop, lives: list[Life]) -> None:
    """What Python makes the dead do when it throws them away reaches nobody any more."""
    with warnings.catch_warnings(), patch.object(sys, "unraisablehook", lambda _: None):
        warnings.simplefilter("ignore")
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                task.get_coro().close()
        # What anyio knows of a task may lead back to it: then both are kept for ever.
        for task in [task for task in _task_states if task.get_loop() is loop]:
            del _task_states[task]
        for life in lives:
            life.process.remains.clear()
            life.process.stash.clear()
        loop.close()
