"""Cut the power of a SQLite store at any write, and see what the next start finds.

A real workload (enqueue, lease, settle with children and checkpoints, retry, bury, sweep, crash,
reopen) is traced: every write, sync, truncation and renaming is recorded. That needs Linux and
Python only, and no privilege. The record is cut off after each of them: what was synced is there,
everything else may be there, missing, torn or in another order. The files are then opened by the
real store and queue. A tenth as many cuts again follow on syncs that failed, which the system
reports once and then forgets.

FULL must have everything that was acknowledged. NORMAL must be as it was after some commit.
Nothing may be corrupt, half-done, or refused though it is sound. Stores and disks that are broken
on purpose must be found out, or the check itself is worth nothing.

exit codes: 0 it held, 1 a promise was broken, 2 bad usage, or a machine it cannot record on
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from pathlib import Path

from tests.evidence import Evidence
from tests.power.campaign import (
    BROKEN,
    FAILING,
    FAULT,
    Tally,
    described,
    keep,
    run,
    show,
    show_failing,
)
from tests.power.machine import this_machine
from tests.power.wal_race import race

_FOR_ONE_ABLATION = 200


class Progress:
    """A line that is rewritten on a terminal, and one every ten seconds elsewhere."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._next = 0.0

    def __call__(self, tally: Tally, wanted: int) -> None:
        self.say(f"{tally.kind}: {tally.cuts}/{wanted} cuts, {tally.broken} broken")

    def say(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + (0.2 if self._live else 10.0)
            sys.stderr.write(f"\r\x1b[K{text}" if self._live else f"{text}\n")
            sys.stderr.flush()

    def done(self) -> None:
        self._next = 0.0
        if self._live:
            sys.stderr.write("\r\x1b[K")


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.power",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cuts", type=int, default=10_000, help="cut points of each kind (10000)")
    parser.add_argument("--seed", type=int, help="of the workloads and of the cuts")
    parser.add_argument("--synchronous", choices=["full", "normal", "both"], default="both")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the files of bad cuts here")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument(
        "--wal-race", action="store_true", help="instead: processes that write and checkpoint (F47)"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of --wal-race (10)")
    options = parser.parse_args(argv)
    if options.cuts < 1 or options.minutes <= 0:
        parser.error("--cuts and --minutes must be positive")
    if not options.wal_race:
        _check_machine(parser)
    return options


def _check_machine(parser: argparse.ArgumentParser) -> None:
    try:
        this_machine()
    except NotImplementedError as missing:
        parser.error(str(missing))


async def _cut_power(options: argparse.Namespace, shows: Evidence) -> None:
    seed = random.randrange(10**6) if options.seed is None else options.seed
    progress = Progress()
    print(f"--seed {seed}")
    both = ("FULL", "NORMAL")
    for kind in both if options.synchronous == "both" else (options.synchronous.upper(),):
        tally = await run(kind, options.cuts, seed, progress)
        progress.done()
        _told(tally, options.keep)
        show(shows, tally, options.cuts)
    tally = await run("FULL", -(-options.cuts // 10), seed, progress, broken=FAILING)
    progress.done()
    _told(tally, options.keep)
    show_failing(shows, tally, -(-options.cuts // 10))
    await _break_on_purpose(shows, seed, progress)


async def _break_on_purpose(shows: Evidence, seed: int, progress: Progress) -> None:
    found = 0
    for broken in BROKEN:
        tally = await run("FULL", _FOR_ONE_ABLATION, seed, progress, broken=broken)
        progress.done()
        print(f"broken on purpose ({broken}): {tally.broken} of {tally.cuts} found out")
        found += tally.broken > 0
    shows(FAULT, "stores broken on purpose that were found out", found, exactly=len(BROKEN))


def _told(tally: Tally, place: Path | None) -> None:
    print(described(tally))
    if place is not None:
        for verdict in tally.bad:
            print(f"  kept in {keep(verdict.cut, place)}")


def main(argv: list[str]) -> int:
    options = _options(argv)
    shows = Evidence()
    try:
        if options.wal_race:
            race(shows, options.minutes * 60, Progress().say)
        else:
            asyncio.run(_cut_power(options, shows))
    except AssertionError as broken:
        print(f"BROKEN: {broken}")
        return 1
    finally:
        if options.json is not None:
            shows.save(options.json)
    for figure in shows.figures:
        print(f"{figure.fault}  {figure.what}: {figure.value} ({figure.bound})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
