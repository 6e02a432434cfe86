"""A SQLite file that another process holds: waited for within the budget, told beyond it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.queue import KVStoreQueue, Lease
from tests.evidence import Evidence
from tests.fault_support import Ledger, bounded, open_run
from tests.harness import impatient
from tests.sqlite_support import child, integrity, own_lag

__all__ = ["bounded"]

SLACK = 3
# So small a part of the holding that, even with the slack, who gives up is told before its end.
HASTE = 0.3
DEFAULT = 10.0

HOLD = """
connection = sqlite3.connect(sys.argv[1], timeout=10)
connection.execute("BEGIN EXCLUSIVE")
say("held")
wait()
connection.rollback()
"""


class Party:
    """A queue in the middle of its work, and the account of it."""

    def __init__(self, queue: KVStoreQueue) -> None:
        self.queue = queue
        self.ledger = Ledger()
        self._held: list[Lease] = []

    async def prepare(self) -> None:
        await self.ledger.enqueue(self.queue, [f"{n}" for n in range(6)])
        self._held = await self.queue.lease(3)

    def calls(self) -> list[Awaitable[Any]]:
        return [
            self.ledger.enqueue(self.queue, ["new"]),
            self._complete_one(),
            self._lease_one(),
            self.queue.sweep(),
            self.queue.stats(),
        ]

    async def _complete_one(self) -> None:
        await self.ledger.complete(self._held[0], ["child"])
        self._held.pop(0)

    async def _lease_one(self) -> None:
        self._held += await self.queue.lease()

    async def close_the_account(self) -> None:
        for lease in self._held:
            await self.ledger.complete(lease)
        await self.ledger.balance(self.queue)


@pytest.mark.parametrize(
    ("seconds", "budget"),
    [
        (1.0, DEFAULT),
        pytest.param(4.0, DEFAULT, marks=pytest.mark.slow),
        pytest.param(10.0, 30.0, marks=pytest.mark.slow),
    ],
)
async def test_a_file_that_is_held_is_waited_for_and_who_is_in_haste_is_told(
    tmp_path: Path, seconds: float, budget: float, shows: Evidence
) -> None:
    path, haste = tmp_path / "run.db", seconds * HASTE
    async with (
        open_run(f"sqlite:///{path}", "patient", op_timeout=budget) as patient_queue,
        open_run(f"sqlite:///{path}", "hasty") as hasty_queue,
    ):
        patient, hasty = Party(patient_queue), Party(hasty_queue)
        for party in (patient, hasty):
            await party.prepare()
        await impatient(hasty_queue, haste)
        with child(HOLD, path) as other:
            other.expect("held")
            held_until = time.monotonic() + seconds
            async with own_lag() as lags:
                working = asyncio.gather(*patient.calls())
                told = await asyncio.gather(*map(_told_after, hasty.calls()))
                await asyncio.sleep(held_until - time.monotonic())
                assert not working.done()
                other.tell()
                await working
            other.rest()
        await impatient(hasty_queue, DEFAULT)
        for party in (patient, hasty):
            await party.close_the_account()
    assert integrity(path) == "ok"
    what, late, most = f"held for {seconds:g} s", round(max(told), 2), haste * 1.1 * SLACK
    lag = round(max(lags) * 1000, 1)
    shows("F42", f"{what}: longest lag of the loop", lag, at_most=50 * SLACK, unit="ms")
    shows("F42", f"{what}, with {haste:g} s to wait: told after", late, at_most=most, unit="s")


async def _told_after(call: Awaitable[Any]) -> float:
    start = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await call
    return time.monotonic() - start
