"""Do two processes on one Redis drain more than one?

Each has so many workers that lease one by one and do nothing. They all wait for a word, so that
starting them does not count.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from typing import Any

from benchmarks.contract import parameters, payload, rate, tell
from benchmarks.ours.stores import store_url
from data_fetcher_core import Entry, open_queue
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue


def queue_of(given: dict[str, Any], processes: int) -> KVStoreQueue:
    return open_queue(store_url(given), run_id=f"of{processes}", serializer=JSONSerializer())


async def fill(given: dict[str, Any], processes: int) -> None:
    async with queue_of(given, processes) as queue:
        item = payload(given["payload_bytes"])
        await queue.enqueue(
            Entry(item, lane=f"lane{n % given['lanes']}") for n in range(given["requests"])
        )


async def drain(given: dict[str, Any]) -> None:
    """The child: open, wait for the word, work until nothing is left. Say how much it was, when
    the last was settled, and when it knew of the end, by the clock that Linux has for all."""
    async with queue_of(given, given["of"]) as queue:
        await queue.stats()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

        async def work() -> tuple[int, float]:
            done, last = 0, 0.0
            async for lease in queue.leases(until="drained"):
                await lease.complete()
                done, last = done + 1, time.perf_counter()
            return done, last

        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(work()) for _ in range(given["workers"])]
        ended = time.perf_counter()
    counts, lasts = zip(*(worker.result() for worker in workers), strict=True)
    print(sum(counts), max(lasts), ended, flush=True)


def started(given: dict[str, Any], processes: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.ours.processes"]
    command.append(json.dumps({**given, "of": processes}))
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def drained(given: dict[str, Any], processes: int) -> dict[str, float]:
    """Requests a second by all of them together, until the last one is settled; and how long it
    takes after that until all of them know."""
    asyncio.run(fill(given, processes))
    crowd = [started(given, processes) for _ in range(processes)]
    for one in crowd:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n", "a worker did not start: its error is above"
    begin = time.perf_counter()
    for one in crowd:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    reports = [one.communicate(timeout=240)[0].split() for one in crowd]
    done, settled, ended = zip(*(map(float, report) for report in reports), strict=True)
    assert sum(done) == given["requests"], f"{done} of {given['requests']}"
    return {
        f"drained@{processes}": rate(given["requests"], max(settled) - begin),
        f"end_noticed_s@{processes}": max(ended) - max(settled),
    }


def main() -> None:
    logging.disable(logging.WARNING)
    given = parameters()
    if "of" in given:
        asyncio.run(drain(given))
    else:
        found: dict[str, float] = {}
        for count in given["processes"]:
            found |= drained(given, count)
        tell(found)


if __name__ == "__main__":
    main()
