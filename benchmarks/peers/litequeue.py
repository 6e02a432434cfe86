"""litequeue in SQLite: a message is locked, then marked as done. Many go in in one transaction.

What a dead process had locked stays locked until somebody calls ``retry`` for it. A pop sorts what
is ready, so the more there is, the longer it takes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from litequeue import LiteQueue

from benchmarks.contract import parameters, tell
from benchmarks.metering import FolderMeter, requests_of


def opened(given: dict[str, Any]) -> Any:
    """It asks for NORMAL, whatever the connection says before."""
    queue = LiteQueue(Path(given["folder"]) / "queue.db")
    queue.conn.execute(f"PRAGMA synchronous = {given['synchronous']}")
    return queue


def fill(queue: Any, singles: list[str], many: list[str], meter: FolderMeter) -> None:
    with meter.timed("enqueue_single", len(singles)):
        for item in singles:
            queue.put(item)
    with meter.filling(len(many)), queue.transaction():
        for item in many:
            queue.put(item)


def run(given: dict[str, Any]) -> dict[str, float]:
    singles, many = requests_of(given)
    count = len(singles) + len(many)
    meter = FolderMeter(given["folder"])
    opened(given).conn.close()
    meter.closed_empty()
    queue = opened(given)
    fill(queue, singles, many, meter)
    queue.conn.close()
    meter.closed_full(count)
    queue = opened(given)
    with meter.timed("drain", count):
        for _ in range(count):
            queue.done(queue.pop().message_id)
    assert queue.empty()
    queue.conn.close()
    return meter.metrics


def main() -> None:
    tell(run(parameters()))


if __name__ == "__main__":
    main()
