"""queuelib's FIFO in SQLite, as Scrapy can use it: what is popped is gone.

A rollback journal with SQLite's own default of FULL, and that cannot be chosen. There is no call
for many.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from queuelib.queue import FifoSQLiteQueue

from benchmarks.contract import parameters, tell
from benchmarks.metering import FolderMeter, requests_of


def opened(given: dict[str, Any]) -> Any:
    return FifoSQLiteQueue(Path(given["folder"]) / "queue.db")


def fill(queue: Any, singles: list[str], many: list[str], meter: FolderMeter) -> None:
    with meter.timed("enqueue_single", len(singles)):
        for item in singles:
            queue.push(item.encode())
    with meter.filling(len(many)):
        for item in many:
            queue.push(item.encode())


def run(given: dict[str, Any]) -> dict[str, float]:
    singles, many = requests_of(given)
    count = len(singles) + len(many)
    meter = FolderMeter(given["folder"])
    queue = opened(given)
    fill(queue, singles, many, meter)
    queue.close()
    meter.closed_full(count)
    queue = opened(given)
    with meter.timed("drain", count):
        popped = sum(queue.pop() is not None for _ in range(count))
    assert (popped, len(queue)) == (count, 0)
    queue.close()
    return meter.metrics


def main() -> None:
    tell(run(parameters()))


if __name__ == "__main__":
    main()
