"""persist-queue in SQLite: with acknowledgements, or without (``"acknowledged": false``).

Its connection is in write-ahead mode with SQLite's own default of FULL, and that cannot be chosen.
There is no call for many. What is acknowledged is cleared away by the thousand, since looking for
the next one passes all of it.
"""

from __future__ import annotations

import logging
from typing import Any

import persistqueue

from benchmarks.contract import parameters, tell
from benchmarks.metering import FolderMeter, requests_of

CLEARED = 1_000


def opened(given: dict[str, Any]) -> Any:
    kind = persistqueue.SQLiteAckQueue if given["acknowledged"] else persistqueue.SQLiteQueue
    return kind(given["folder"], auto_commit=True)


def fill(queue: Any, singles: list[str], many: list[str], meter: FolderMeter) -> None:
    with meter.timed("enqueue_single", len(singles)):
        for item in singles:
            queue.put(item)
    with meter.filling(len(many)):
        for item in many:
            queue.put(item)


def take(queue: Any, count: int) -> None:
    for _ in range(count):
        queue.get(block=False)


def take_and_acknowledge(queue: Any, count: int) -> None:
    for number in range(1, count + 1):
        assert queue.ack(id=queue.get(block=False, raw=True)["pqid"])
        if number % CLEARED == 0:
            queue.clear_acked_data(max_delete=CLEARED, keep_latest=0)
    assert queue.unack_count() == 0


def run(given: dict[str, Any]) -> dict[str, float]:
    singles, many = requests_of(given)
    count = len(singles) + len(many)
    meter = FolderMeter(given["folder"])
    opened(given).close()
    meter.closed_empty()
    queue = opened(given)
    fill(queue, singles, many, meter)
    queue.close()
    meter.closed_full(count)
    queue = opened(given)
    with meter.timed("drain", count):
        (take_and_acknowledge if given["acknowledged"] else take)(queue, count)
    assert queue.size == 0
    queue.close()
    return meter.metrics


def main() -> None:
    logging.disable(logging.WARNING)
    tell(run(parameters()))


if __name__ == "__main__":
    main()
