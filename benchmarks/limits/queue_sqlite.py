"""What SQLite allows: one table in write-ahead mode, used by the thread that has it open.

A hundred requests are claimed in one commit and deleted in another, so that nothing is lost when
the process dies, and that is all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.contract import parameters, tell
from benchmarks.metering import FolderMeter, requests_of

CREATE = (
    "CREATE TABLE requests (id INTEGER PRIMARY KEY, claimed INTEGER NOT NULL DEFAULT 0, body BLOB)"
)
INSERT = "INSERT INTO requests (body) VALUES (?)"
CLAIM = """
    UPDATE requests SET claimed = 1 WHERE id IN
    (SELECT id FROM requests WHERE claimed = 0 ORDER BY id LIMIT ?) RETURNING id, body
"""
DELETE = "DELETE FROM requests WHERE id = ?"


class BareQueue:
    def __init__(self, file: Path, synchronous: str) -> None:
        self._database = sqlite3.connect(file, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA synchronous = {synchronous}")

    def create(self) -> None:
        self._database.execute(CREATE)

    def push(self, bodies: Sequence[str]) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany(INSERT, [(body,) for body in bodies])
        self._database.execute("COMMIT")

    def claim_and_delete(self, most: int) -> int:
        claimed = self._database.execute(CLAIM, (most,)).fetchall()
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany(DELETE, [(number,) for number, _ in claimed])
        self._database.execute("COMMIT")
        return len(claimed)

    def close(self) -> None:
        self._database.close()


def fill(
    queue: BareQueue, singles: list[str], many: list[str], batch: int, meter: FolderMeter
) -> None:
    with meter.timed("enqueue_single", len(singles)):
        for body in singles:
            queue.push([body])
    with meter.filling(len(many)):
        for start in range(0, len(many), batch):
            queue.push(many[start : start + batch])


def drain(queue: BareQueue, count: int, batch: int, meter: FolderMeter) -> None:
    deleted = 0
    with meter.timed("drain", count):
        while some := queue.claim_and_delete(batch):
            deleted += some
    assert deleted == count, deleted


def run(given: dict[str, Any]) -> dict[str, float]:
    file, mode, batch = Path(given["folder"]) / "queue.db", given["synchronous"], given["batch"]
    singles, many = requests_of(given)
    meter = FolderMeter(given["folder"])
    with closing(BareQueue(file, mode)) as queue:
        queue.create()
    meter.closed_empty()
    with closing(BareQueue(file, mode)) as queue:
        fill(queue, singles, many, batch, meter)
    meter.closed_full(len(singles) + len(many))
    with closing(BareQueue(file, mode)) as queue:
        drain(queue, len(singles) + len(many), batch, meter)
    return meter.metrics


def main() -> None:
    tell(run(parameters()))


if __name__ == "__main__":
    main()
