"""Whose silence is counted, and for how long: by the promise of who is silent, while we looked."""

from __future__ import annotations

import asyncio
import signal

import pytest

from data_fetcher_core.clock import SYSTEM_CLOCK
from data_fetcher_core.queue.consumers import Watchlist, here, make_name, place_of, promise_of
from data_fetcher_core.testing import ManualClock
from tests.children import child, go_on, said
from tests.conftest import MakeQueue
from tests.evidence import Evidence
from tests.harness import client_of, items

TTL = 6.0
INTERVAL = 1.0


class Watcher:
    """Looks at consumers whose numbers never move, on a clock that the test lets pass."""

    def __init__(self, *names: bytes) -> None:
        self.now = 1_000.0
        self._beats = dict.fromkeys(names, 1)
        self._watchlist = Watchlist(lambda: self.now)

    def looks(self, *, after: float, excused: float = 0.0) -> list[bytes]:
        """Those whom it takes for dead; for a part of the time the store did not answer."""
        self.now += after
        if excused:
            self._watchlist.excuse(excused)
        return self._watchlist.silent(self._beats, self.now, TTL)

    def finds_after(self, name: bytes) -> float:
        """How long it looks, as often as a heart does, until that one is taken for dead."""
        began = self.now
        while name not in self.looks(after=INTERVAL):
            assert self.now - began < 10 * TTL, "it never ends"
        return self.now - began


def test_who_looks_regularly_finds_the_dead_after_one_lease() -> None:
    watcher = Watcher(b"dead")
    assert watcher.looks(after=0.0) == []
    assert watcher.finds_after(b"dead") == TTL


@pytest.mark.parametrize("stopped", [TTL, 10 * TTL, 86_400.0])
def test_who_was_stopped_has_not_seen_the_silence_of_the_others(stopped: float) -> None:
    """A paused container, a sleeping shell: whoever wakes first leaves the others time to wake."""
    watcher = Watcher(b"asleep")
    assert watcher.looks(after=0.0) == []
    assert watcher.looks(after=INTERVAL) == []
    assert watcher.looks(after=stopped) == []
    assert TTL / 2 <= watcher.finds_after(b"asleep") <= TTL, "of the time it was awake"


def test_what_is_excused_was_no_gap() -> None:
    """A store that was slow to answer is excused once."""
    watcher = Watcher(b"dead")
    assert watcher.looks(after=0.0) == []
    assert watcher.looks(after=9 * TTL, excused=9 * TTL - INTERVAL) == []
    assert watcher.finds_after(b"dead") == TTL - INTERVAL


def test_a_gap_of_no_more_than_a_third_of_a_lease_is_counted() -> None:
    watcher = Watcher(b"dead")
    found = [watcher.looks(after=after) for after in (0.0, TTL / 3, TTL / 3, TTL / 3)]
    assert found == [[], [], [], [b"dead"]]


@pytest.mark.parametrize("promised", [TTL / 2, 5 * TTL])
def test_everybody_is_judged_by_its_own_promise(promised: float) -> None:
    name = make_name(here(), promised)
    watcher = Watcher(name)
    assert watcher.looks(after=0.0) == []
    assert watcher.finds_after(name) == promised


@pytest.mark.parametrize("lease_ttl", [1e-6, 0.5, 30.0, 10 * 365 * 86_400.0])
def test_a_name_tells_the_promise(lease_ttl: float) -> None:
    name = make_name(here(), lease_ttl)
    assert promise_of(name) == lease_ttl
    assert place_of(name) == here()


@pytest.mark.parametrize("told", ["", "0", "-5", "1e3", "nan", "²", "9" * 16, "9" * 5_000])
def test_a_promise_that_cannot_be(told: str) -> None:
    name = "|".join([*map(str, here()), told, "0"]).encode()
    assert promise_of(name) is None
    assert promise_of(make_name(here())) is None
    assert promise_of(b"\xff|||||\xff|") is None


async def test_a_shorter_lease_takes_nothing_from_those_who_beat_by_a_longer_one(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """Between two beats of the first, the second has waited for more than a lease of its own."""
    first = make_queue(lease_ttl=30.0)
    await first.enqueue(["held"])
    (lease,) = await first.lease()
    second = make_queue(lease_ttl=2.0)
    await second.sweep()
    for _ in range(4):
        clock.advance(0.7)
        await second.sweep()
    assert (await client_of(first)).heard_at == 0.0, "it has not beaten yet"
    assert await second.lease() == []
    await lease.complete()
    assert (await second.stats()).completed == 1


async def test_and_what_they_held_is_found_after_the_longer_one(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    first = make_queue(lease_ttl=30.0)
    await first.enqueue(["held"])
    (lease,) = await first.lease()
    await (await client_of(first)).tasks.cancel()
    second = make_queue(lease_ttl=2.0)
    await second.sweep()
    clock.advance(29.0)
    await second.sweep()
    assert await second.lease() == []
    clock.advance(1.0)
    await second.sweep()
    assert items(await second.lease()) == ["held"]
    del lease


@pytest.mark.slow
@pytest.mark.parametrize("store_kind", ["redis"], indirect=True)
async def test_those_who_were_stopped_together_do_not_take_each_other_for_dead(
    make_queue: MakeQueue, store_url: str, shows: Evidence
) -> None:
    lease_ttl = 3.0
    orders = store_url, 1, lease_ttl
    await make_queue(clock=SYSTEM_CLOCK, lease_ttl=lease_ttl).enqueue(["a", "b"])
    with child("hold", *orders) as first, child("hold", *orders) as second:
        assert sorted(said(first) + said(second)) == ["a", "b"]
        await asyncio.sleep(lease_ttl / 2)  # until each has heard of the other
        for process in (first, second):
            process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(1.5 * lease_ttl)
        for process in (first, second):
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(lease_ttl / 6)
        go_on(first)
        go_on(second)
        lost = (said(first) + said(second)).count("LeaseLost")
    shows("F24", "living processes taken for dead after all had been stopped", lost, exactly=0)
