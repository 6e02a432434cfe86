"""How long does it take to go on, with much in the queue?

A process fills the queue, leases some of it, and is killed. Then another is started, and the time
counts until it has its first lease: all of it, interpreter and imports included, and the part of
it that is the queue's own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from typing import Any

from benchmarks.contract import parameters, payload, tell
from benchmarks.ours.stores import store_url
from data_fetcher_core import Entry, open_queue
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue

STEP = 10_000


def queue_of(given: dict[str, Any]) -> KVStoreQueue:
    return open_queue(store_url(given), run_id="resume", serializer=JSONSerializer())


def entry(number: int, given: dict[str, Any]) -> Entry:
    text = payload(given["payload_bytes"], number)
    return Entry(text, lane=f"lane{number % given['lanes']}", key=str(number))


# --- the one that is killed ----------------------------------------------------------------------


async def fill(given: dict[str, Any]) -> None:
    queue = queue_of(given)
    for start in range(given["from"], given["upto"], STEP):
        numbers = range(start, min(start + STEP, given["upto"]))
        await queue.enqueue(entry(number, given) for number in numbers)
    held = await queue.lease(given["in_flight"])
    print(len(held), flush=True)
    await asyncio.Event().wait()


def filled_and_killed(given: dict[str, Any]) -> None:
    process = started("fill", given)
    try:
        assert int(line_of(process)) == given["in_flight"]
    finally:
        process.kill()
        process.communicate()


# --- the one that goes on ------------------------------------------------------------------------


async def first_lease(given: dict[str, Any]) -> None:
    """Print the seconds from nothing but imports to a lease."""
    begin = time.perf_counter()
    async with queue_of(given) as queue:
        (lease,) = await queue.lease()
        print(time.perf_counter() - begin, flush=True)
        await lease.complete()


def resumed(given: dict[str, Any]) -> tuple[float, float]:
    """Until the first lease: since the process was started, and since its imports were done."""
    begin = time.perf_counter()
    process = started("first", given)
    own = float(line_of(process))
    whole = time.perf_counter() - begin
    process.communicate(timeout=60)
    return whole, own


# --- both ----------------------------------------------------------------------------------------


def started(mode: str, given: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.ours.resume", json.dumps({**given, "mode": mode})]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("a process ended before it had done anything: its error is above")
    return line


def measure(given: dict[str, Any]) -> dict[str, float]:
    """Size after size, in one queue that grows."""
    found: dict[str, float] = {}
    before = 0
    for size in given["sizes"]:
        filled_and_killed({**given, "from": before, "upto": size})
        whole, own = resumed(given)
        found |= {f"first_lease_s@{size}": whole, f"own_s@{size}": own}
        before = size
    return found


def main() -> None:
    logging.disable(logging.WARNING)
    given = parameters()
    mode = given.get("mode")
    if mode is None:
        tell(measure(given))
    else:
        asyncio.run(fill(given) if mode == "fill" else first_lease(given))


if __name__ == "__main__":
    main()
