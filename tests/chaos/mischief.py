"""The faults, as they are done to a run."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from tests.chaos.ledger import ALL, FLAP, FULL, OUTAGE, SLOW, Pen
from tests.chaos.processes import Processes, Slot
from tests.chaos.stores import Place
from tests.chaos.tiers import Step, Tier
from tests.chaos.timing import RECOVERY

_DOWN, _UP = 0.2, 0.3
_STOPPED_TWICE = 0.3
_GLANCE = 0.05
# 50 ms late, more or less.
_DELAY = _JITTER = 0.05
_PATIENCE = 30.0
# In leases: within one its silence is noticed, and a little later all that it held is ready again;
# on a busy machine a good deal later.
_TAKEN_UP = 2.0


class Mischief:
    """Does one thing after another; ``done`` counts what happened, ``due`` what the plan had.

    ``untried`` is what cannot be done on this machine.
    """

    def __init__(
        self,
        tier: Tier,
        place: Place,
        processes: Processes,
        pen: Pen,
        seed: int,
        *,
        patience: float = _PATIENCE,
    ) -> None:
        self.untried: set[str] = set()
        self.done: Counter[str] = Counter()
        self.due: Counter[str] = Counter()
        self._tier = tier
        self._place = place
        self._processes = processes
        self._pen = pen
        self._dice = random.Random(seed)
        self._alone = asyncio.Lock()
        self._patience = patience
        # When the last fault of the store ended.
        self._disturbed = 0.0
        self._kinds: dict[str, Callable[[], Awaitable[bool]]] = {
            "kill": partial(self._insist, self._kill),
            "stop": partial(self._insist, self._stop),
            "kill in calm": partial(self._insist, self._kill_in_calm),
            "stop in calm": partial(self._insist, self._stop_in_calm),
            "kill server": self._kill_server,
            "kill all": partial(self._insist, self._kill_all),
            "flap": self._flap,
            "slow": self._slow,
            "fill": self._fill,
        }

    async def run(self, steps: Sequence[Step], start: float) -> None:
        try:
            for step in steps:
                await asyncio.sleep(max(0.0, start + step.at - time.monotonic()))
                self.done[step.kind] += await self._kinds[step.kind]()
        finally:
            until = time.monotonic() - start
            self.due.update(step.kind for step in steps if step.at <= until)

    async def _insist(self, attempt: Callable[[], Awaitable[bool]]) -> bool:
        """Until it happens: whoever it is done to may have ended by itself, or not be there yet."""
        until = time.monotonic() + self._patience
        while not await attempt():
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(_GLANCE)
        return True

    # --- each tells whether it happened ----------------------------------------------------------

    async def _kill(self, *, grown: bool = False) -> bool:
        async with self._alone:
            slot = self._processes.choose("worker", self._dice, grown=grown)
            if slot is None:
                return False
            await self._kill_these([slot])
            # It may have ended by itself before the signal came.
            return slot.code == -signal.SIGKILL

    async def _stop(self, *, grown: bool = False) -> bool:
        """SIGTERM, now and then twice; its successor comes at once."""
        async with self._alone:
            slot = self._processes.choose("worker", self._dice, grown=grown)
            if slot is None:
                return False
            process, gone = slot.process, slot.gone
            self._processes.stop(slot)
            if self._dice.random() < _STOPPED_TWICE:
                await asyncio.sleep(self._dice.uniform(0, 0.1))
                if slot.process == process:  # else its successor is here already
                    self._processes.stop(slot)
            await gone.wait()
            return slot.code == 0

    async def _kill_in_calm(self) -> bool:
        """And nothing more until what it held has been taken up."""
        await self._until_calm()
        killed = await self._kill(grown=True)
        await asyncio.sleep(_TAKEN_UP * self._tier.lease_ttl if killed else 0.0)
        return killed

    async def _stop_in_calm(self) -> bool:
        await self._until_calm()
        return await self._stop(grown=True)

    async def _until_calm(self) -> None:
        """The store is there, and all have had the time to notice that it is."""
        await asyncio.sleep(max(0.0, self._disturbed + RECOVERY - time.monotonic()))

    def _note_fault(self, kind: str, start: float) -> None:
        self._pen.fault(kind, start)
        self._disturbed = time.monotonic()

    async def _kill_server(self) -> bool:
        start = time.monotonic()
        await self._place.kill_server()
        await asyncio.sleep(self._dice.uniform(0, self._tier.longest_outage))
        await self._place.start_server()
        self._note_fault(OUTAGE, start)
        return True

    async def _kill_all(self) -> bool:
        """Producers, workers and the server, at one instant."""
        async with self._alone:
            start = time.monotonic()
            running = [slot for slot in self._processes.slots if slot.pid is not None]
            if not running:
                return False
            self._processes.paused.clear()
            await asyncio.gather(self._kill_these(running), self._place.kill_server())
            await asyncio.sleep(self._dice.uniform(0, self._tier.longest_outage))
            await self._place.start_server()
            self._processes.paused.set()
            self._note_fault(ALL, start)
            return True

    async def _kill_these(self, slots: list[Slot]) -> None:
        gone = [slot.gone for slot in slots]
        for slot in slots:
            self._processes.kill(slot)
        for one in gone:
            await one.wait()

    async def _flap(self) -> bool:
        assert self._place.network is not None
        start = time.monotonic()
        while time.monotonic() - start < self._tier.flap_for:
            await self._place.network.down()
            await asyncio.sleep(_DOWN)
            await self._place.network.up()
            await asyncio.sleep(_UP)
        self._note_fault(FLAP, start)
        return True

    async def _slow(self) -> bool:
        assert self._place.network is not None
        start = time.monotonic()
        await self._place.network.weather(delay=_DELAY, jitter=_JITTER)
        await asyncio.sleep(self._tier.slow_for)
        await self._place.network.weather(delay=0.0, jitter=0.0)
        self._note_fault(SLOW, start)
        return True

    async def _fill(self) -> bool:
        if not self._place.can_fill:
            self.untried.add("fill")
            return False
        start = time.monotonic()
        while time.monotonic() - start < self._tier.fill_for:
            await self._place.fill()
            await asyncio.sleep(_GLANCE)
        await self._place.make_room()
        self._note_fault(FULL, start)
        return True
