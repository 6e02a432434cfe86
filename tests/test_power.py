"""The power is cut at any write of a SQLite store; and whether the check would notice harm."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evidence import Evidence
from tests.fault_support import bounded
from tests.power.__main__ import main
from tests.power.account import Due, Found, wrong_with
from tests.power.campaign import BROKEN, FAULT, run, show
from tests.power.cuts import cuts
from tests.power.disk import SECTOR, Disk, Fate, File
from tests.power.events import (
    Link,
    OnDisk,
    Sync,
    SyncDirectory,
    Truncate,
    Trying,
    Unlink,
    Write,
)
from tests.power.fates import WAYS, Choose, cut
from tests.power.record import Record, record
from tests.power.verdict import Judge, Outcome
from tests.power.wal_race import Looker, race, run_writers

__all__ = ["bounded"]

CUTS = 100
A, B, C = (letter * SECTOR for letter in (b"a", b"b", b"c"))


# --- the cuts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
async def test_a_power_cut_at_any_write(synchronous: str, shows: Evidence) -> None:
    tally = await run(synchronous, CUTS, seed=1)
    assert not tally.bad, tally.bad[0]
    show(shows, tally, CUTS)


@pytest.mark.parametrize("broken", BROKEN)
async def test_what_is_broken_on_purpose_is_found_out(broken: str, shows: Evidence) -> None:
    """A store that never syncs, one that settles in two steps, a disk that lies about syncs."""
    tally = await run("FULL", 100, seed=1, broken=broken)
    shows(FAULT, f"broken on purpose ({broken}): found out", tally.broken, at_least=1)


async def test_a_power_cut_after_syncs_that_failed(shows: Evidence) -> None:
    """At these moments a store that trusts the next sync loses what it acknowledged."""
    made, judge = record(3, "FULL", failing=range(8, 12)), Judge(may_undo=False)
    failed = [event for event in made.events if isinstance(event, Sync) and event.failed]
    assert len(failed) > 3
    verdicts = [await judge.judge(one) for one in cuts(made, 60)]
    bad = [verdict for verdict in verdicts if verdict.outcome is not Outcome.HELD]
    assert not bad, bad[0]
    shows("F44", "cut points after failed syncs, no two alike", len(verdicts), at_least=50)
    shows("F44", "of them lost, corrupt, half-done or refused", len(bad), exactly=0)


async def test_a_state_that_never_was_and_one_that_is_too_old_are_told_apart() -> None:
    made = record(3, "FULL", steps=5)
    *_, last = cuts(made, 30)
    judge = Judge(may_undo=False)
    assert (await judge.judge(last)).outcome is Outcome.HELD
    too_old = replace(last, acknowledged=last.acknowledged + 1)
    assert (await judge.judge(too_old)).outcome is Outcome.LOST
    others = [
        replace(event, state="another") if isinstance(event, Trying) else event
        for event in made.events
    ]
    foreign = replace(last, record=Record(made.name, others))
    assert (await judge.judge(foreign)).outcome is Outcome.HALF


def test_an_account_that_does_not_add_up_is_told() -> None:
    known = Due({"1", "2"}, {"1", "2"}, {"1"}, {"1": ["2"]}, set(), {"cursor 2"})
    sound = Found(Counter({"1": 1}), Counter(), Counter({"2": 1}), {"page 1", "cursor 2"})
    assert wrong_with(sound, known) == ""
    assert "lost: ['2']" in wrong_with(replace(sound, left=Counter()), known)
    assert "half completed: ['1']" in wrong_with(replace(sound, left=Counter()), known)
    assert "half completed" in wrong_with(replace(sound, saved={"cursor 2"}), known)
    assert "more than once" in wrong_with(replace(sound, dead=Counter({"2": 1})), known)
    assert "from nowhere" in wrong_with(replace(sound, dead=Counter({"3": 1})), known)
    assert "not completed" in wrong_with(replace(sound, completed=Counter()), known)
    assert "not saved" in wrong_with(replace(sound, saved={"page 1"}), known)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--cuts", "0"])
    assert refused.value.code == 2
    assert "must be positive" in capsys.readouterr().err


# --- the disk ------------------------------------------------------------------------------------


def test_what_was_synced_stays_whatever_becomes_of_the_rest() -> None:
    file = File()
    file.pending += [Write(0, 0, A), Write(0, SECTOR, B)]
    file.sync(1)
    file.pending.append(Write(0, 2 * SECTOR, C))
    for way in WAYS:
        for seed in range(20):
            assert file.after(way(random.Random(seed), file))[:SECTOR] == A


def test_each_sector_is_as_it_was_at_some_moment() -> None:
    file = File(A + A, [Write(0, 0, B + B), Write(0, 0, C + C)])
    found = set()
    for seed in range(2000):
        content = file.after(WAYS[seed % len(WAYS)](random.Random(seed), file))
        found.add(content)
        for sector in (content[:SECTOR], content[SECTOR:]):
            assert sector.strip(b"a") in {b"", B, C} or len(set(sector)) == 2, sector
    assert {A + A, B + A, A + B, C + B, B + C, C + C} <= found


def test_a_write_stops_at_any_byte_from_either_end() -> None:
    file = File(A, [Write(0, 0, B)])
    torn = Fate(1, {0: 0}, {0: 3})
    assert file.after(torn) == b"bbb" + A[3:]
    assert file.after(replace(torn, torn={0: -3})) == A[:-3] + b"bbb"


def test_size_and_bytes_go_their_own_ways() -> None:
    file = File(A, [Write(0, SECTOR, B)])
    assert file.after(Fate(0, size=1)) == A + bytes(SECTOR)
    assert file.after(Fate(1, size=0)) == A
    file.pending.append(Truncate(0, 0))
    assert file.after(Fate(1, size=2)) == b""
    assert file.after(Fate(2)) == b""
    file.pending.append(Write(0, 2 * SECTOR, C))
    assert file.after(Fate(3)) == bytes(2 * SECTOR) + C


def test_a_sync_covers_what_was_asked_for_before_it_was_called() -> None:
    disk = Disk()
    _do(disk, Link("x", 0), Write(0, 0, A), Write(0, SECTOR, B), Sync(0, 1))
    assert disk.files[0].durable == A
    assert len(disk.files[0].pending) == 1


def test_what_a_failed_sync_was_to_write_is_passed_over_by_the_next() -> None:
    page = 8 * SECTOR
    file = File(bytes(2 * page), [Write(0, 0, A), Write(0, page, B)])
    file.sync(2, failed=True)
    file.pending.append(Write(0, page + SECTOR, C))
    file.sync(3)
    assert file.after(Fate(0)) == bytes(page) + B + C + bytes(page - 2 * SECTOR)
    assert file.after(Fate(1))[:SECTOR] == A
    file.pending.append(Write(0, 0, A))
    file.sync(4)
    assert (file.durable[:SECTOR], file.pending) == (A, [])


def test_names_are_durable_with_their_directory() -> None:
    disk = Disk()
    _do(disk, Link("old", 0), Write(0, 0, A), Sync(0, 1), SyncDirectory())
    _do(disk, Link("new", 0, instead_of="old"), Link("log", 1), Unlink("log"))
    seen = {frozenset(cut(disk, variant, random.Random(variant))) for variant in range(200)}
    assert seen == {
        frozenset(names) for names in (["old"], ["new"], ["old", "log"], ["new", "log"])
    }
    disk.do(SyncDirectory())
    assert set(cut(disk, 1, random.Random(0))) == {"new"}


def _do(disk: Disk, *events: OnDisk) -> None:
    for event in events:
        disk.do(event)


# --- two processes at the log --------------------------------------------------------------------


def test_two_processes_write_and_checkpoint(shows: Evidence) -> None:
    race(shows, 2.0)


def test_two_at_the_log_without_the_lock_are_seen(tmp_path: Path) -> None:
    """So that none seen with the lock means something."""
    path = tmp_path / "run.db"
    for _ in range(5):
        sums = run_writers(Looker(path), path, 1.0, lambda _: None, "unlocked")
        if sums["together"]:
            return
    raise AssertionError("never two at once")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_file_is_shortened_or_it_is_not(way: Choose) -> None:
    """Its size and the blocks that it gives up are one change of the file system: no holes."""
    dice, old = random.Random(1), b"x" * 9 * SECTOR
    for _ in range(200):
        file = File(old, [Truncate(0, SECTOR)])
        assert file.after(way(dice, file)) in {old, old[:SECTOR]}


def test_what_is_behind_the_end_of_a_shortened_file_is_gone() -> None:
    file = File(b"x" * 4 * SECTOR, [Truncate(0, 0), Write(0, 3 * SECTOR, b"y" * SECTOR)])
    assert file.after(Fate(2)) == bytes(3 * SECTOR) + b"y" * SECTOR
    assert file.after(Fate(0, {3: 2}, size=2)) == bytes(3 * SECTOR) + b"y" * SECTOR
