"""The processes of a run: started, killed, and started again in their place."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.ledger import SUFFIX, Pen
from tests.chaos.worker import POISONED
from tests.chaos.zygote import Zygote

Orders = Callable[[str, str], dict[str, Any]]
"""From the name of a process and its ledger to what it is told."""

# So young, a process may not have heard of SIGTERM yet.
_CHILDHOOD = 1.0


@dataclass(eq=False)
class Slot:
    """A place for one process at a time."""

    kind: str
    name: str
    orders: Orders
    generation: int = 0
    process: str = ""
    pid: int | None = None
    # How the last one here ended.
    code: int | None = None
    started: float = 0.0
    # Whether who ends is to be replaced.
    wanted: bool = True
    # Whether nothing is done to who is here.
    spared: bool = False
    expected: set[int] = field(default_factory=set)
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class Processes:
    def __init__(self, folder: Path, pen: Pen, output: Path) -> None:
        self.slots: list[Slot] = []
        self.crashes: list[str] = []
        self.zygote = Zygote(output, self._ended)
        self._folder = folder
        self._pen = pen
        self._by_pid: dict[int, Slot] = {}
        # Those that ended before their pid was known here, and those that have no slot.
        self.unclaimed: dict[int, int] = {}
        self._vacant: asyncio.Queue[Slot] = asyncio.Queue()
        self.paused = asyncio.Event()
        self.paused.set()

    def of(self, kind: str) -> list[Slot]:
        return [slot for slot in self.slots if slot.kind == kind]

    async def add(self, kind: str, name: str, orders: Orders, *, spared: bool = False) -> Slot:
        slot = Slot(kind, name, orders, spared=spared)
        self.slots.append(slot)
        await self._fill(slot)
        return slot

    async def replace_the_dead(self) -> None:
        """For ever: whoever ended and is wanted is started anew."""
        while True:
            slot = await self._vacant.get()
            await self.paused.wait()
            if slot.wanted:
                await self._fill(slot)

    async def _fill(self, slot: Slot) -> None:
        slot.generation += 1
        slot.process = f"{slot.name}.{slot.generation}"
        slot.expected = {POISONED} if slot.kind == "worker" else {0}
        slot.gone = asyncio.Event()
        slot.started = time.monotonic()
        ledger = self._folder / f"{slot.name}{SUFFIX}"
        ledger.touch()
        slot.pid = await self.zygote.start(slot.kind, slot.orders(slot.process, str(ledger)))
        self._by_pid[slot.pid] = slot
        if slot.pid in self.unclaimed:
            self._ended(slot.pid, self.unclaimed.pop(slot.pid))

    def kill(self, slot: Slot) -> None:
        """SIGKILL, noted first: whoever takes up what it held does so later."""
        if slot.pid is not None:
            self._pen.note("killed", process=slot.process)
            slot.expected.add(-signal.SIGKILL)
            self.zygote.signal(slot.pid, signal.SIGKILL)

    def stop(self, slot: Slot) -> None:
        """SIGTERM: it should end in peace."""
        if slot.pid is not None:
            self._pen.note("told to stop", process=slot.process)
            slot.expected.add(0)
            if time.monotonic() - slot.started < _CHILDHOOD:
                slot.expected.add(-signal.SIGTERM)
            self.zygote.signal(slot.pid, signal.SIGTERM)

    def choose(self, kind: str, dice: random.Random, *, grown: bool = False) -> Slot | None:
        """One that runs; ``grown`` is who has had the time to introduce itself."""
        born_before = time.monotonic() - (_CHILDHOOD if grown else 0.0)
        running = [slot for slot in self.of(kind) if slot.pid is not None and not slot.spared]
        fit = [slot for slot in running if slot.started <= born_before]
        return dice.choice(fit) if fit else None

    def _ended(self, pid: int, code: int) -> None:
        slot = self._by_pid.pop(pid, None)
        if slot is None:
            self.unclaimed[pid] = code
            return
        self._pen.note("gone", code, process=slot.process)
        if code not in slot.expected:
            self.crashes.append(f"{slot.process} ended with {code}")
        slot.pid, slot.code = None, code
        if slot.kind == "producer" and code == 0:
            slot.wanted = False
        slot.gone.set()
        self._vacant.put_nowait(slot)
