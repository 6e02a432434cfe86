"""Fill a queue with far too much, and see that everybody gets a turn and nothing is left behind.

    python -m tests.crowds                            a million on Redis, then on SQLite
    python -m tests.crowds --store redis --json figures.json
    python -m tests.crowds --requests 5000 --lanes 500    in seconds

Lanes: 10,000 of them, of which one holds a million requests and every other one a few; newcomers
arrive while they are served. Jain's index of what each lane gets, the longest wait for a turn, and
what lanes that are empty again leave behind in the store and in the process.

Flood: a million urgent requests come, faster than they can be served, after one that can wait. It
is served as soon as their head start is used up, by a clock that is moved by hand.

exit codes: 0 it held, 1 a promise was broken, 2 bad usage
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from data_fetcher_core.testing import ManualClock
from tests.crowds.flood import AGEING_STEP, HEAD_START, flood, show_flood
from tests.crowds.lanes import Size, crowd, show_lanes
from tests.crowds.places import Place, open_place
from tests.crowds.turns import BATCH, show_turns
from tests.evidence import Evidence
from tests.fault_support import open_run
from tests.reliability.progress import Teller

STORES = ("redis", "sqlite")
EACH = 5
# Of what comes in a second, so much can be served.
_SERVED = 0.8
_SECONDS_OF_HEAD_START = int(HEAD_START)


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _read(arguments)
    shows, teller = Evidence(), Teller(sys.stderr)
    try:
        for kind in STORES if asked.store == "both" else (asked.store,):
            with tempfile.TemporaryDirectory(prefix="crowds-") as folder:
                _run(asked, kind, Path(folder), shows, teller)
    except AssertionError as broken:
        print(f"BROKEN: {broken}")
        return 1
    finally:
        if asked.json is not None:
            shows.save(asked.json)
    return 0


def _run(
    asked: argparse.Namespace, kind: str, folder: Path, shows: Evidence, teller: Teller
) -> None:
    with open_place(kind, folder) as place:
        for name, work in (("lanes", _crowd_lanes), ("flood", _flood)):
            start, known = time.monotonic(), len(shows.figures)
            teller.say(f"{name} on {kind}: {asked.requests:,} requests, {asked.lanes:,} lanes")
            try:
                asyncio.run(work(asked, kind, place, shows, teller))
            finally:
                _print(shows, known, f"{name} on {kind}: {time.monotonic() - start:.0f} s")


def _print(shows: Evidence, known: int, title: str) -> None:
    print(title)
    for one in shows.figures[known:]:
        print(f"  {one.fault}  {one.what}: {one.value} {one.unit} ({one.bound})", flush=True)


async def _crowd_lanes(
    asked: argparse.Namespace, kind: str, place: Place, shows: Evidence, teller: Teller
) -> None:
    where = f" ({asked.lanes:,} lanes, {asked.requests:,} in one, {kind})"
    async with open_run(place.url, "lanes") as queue:
        size = Size(asked.requests, asked.lanes, EACH)
        seen = await crowd(queue, place, size, teller.tell)
        show_turns(shows, seen.turns, where)
        show_lanes(shows, seen, place, where)


async def _flood(
    asked: argparse.Namespace, kind: str, place: Place, shows: Evidence, teller: Teller
) -> None:
    clock = ManualClock()
    arriving = -(-asked.requests // _SECONDS_OF_HEAD_START)
    async with open_run(place.url, "flood", clock=clock, ageing_step=AGEING_STEP) as queue:
        seen = await flood(queue, clock, arriving, int(arriving * _SERVED), teller.tell)
    show_flood(shows, seen, asked.requests, f" ({asked.requests:,} urgent, {kind})")


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.crowds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--store", choices=(*STORES, "both"), default="both")
    parser.add_argument(
        "--requests", type=_at_least(4 * BATCH), default=1_000_000, metavar="N", help="(1000000)"
    )
    parser.add_argument("--lanes", type=_at_least(10), default=10_000, metavar="N", help="(10000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser.parse_args(arguments)


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        found = int(text)
        if found < least:
            raise argparse.ArgumentTypeError(f"{least:,} or more, not {found:,}")
        return found

    return number


if __name__ == "__main__":
    sys.exit(main())
