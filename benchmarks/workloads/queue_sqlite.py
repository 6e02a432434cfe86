"""A queue in a file, used by one process. FULL: a commit survives a power cut; NORMAL: a kill.

Peers take one request after the other in one thread, which is the fastest that each of them can:
SQLite has one writer. ``bytes_on_disk`` is told of closed files, without what an empty one takes.
"""

from __future__ import annotations

from typing import Any

from benchmarks.suite import Contender, Metric, Target, Workload

MANY = {"requests": 50_000}
QUICK_MANY = {"requests": 10_000}
OURS_FULL = "data_fetcher_core, FULL"
LIMIT_FULL = "sqlite3 by hand, FULL"
ACKNOWLEDGED = "persist-queue SQLiteAckQueue"
LITEQUEUE_FULL = "litequeue, FULL"
IN_FLIGHT_LOST = "at most once: what is in flight is lost"


def ours(name: str, mode: str) -> Contender:
    return Contender(
        name,
        "benchmarks.ours.queue_sqlite",
        promise="at least once; 100 workers that lease one by one",
        settings={**MANY, "synchronous": mode},
        quick_settings=QUICK_MANY,
    )


def limit(name: str, mode: str) -> Contender:
    return Contender(
        name,
        "benchmarks.limits.queue_sqlite",
        promise="claims are never taken up",
        settings={**MANY, "synchronous": mode, "batch": 100},
        quick_settings=QUICK_MANY,
    )


def peer(name: str, module: str, promise: str, **settings: Any) -> Contender:
    return Contender(
        name,
        f"benchmarks.peers.{module}",
        environment=module,
        promise=promise,
        settings=settings,
        quick_settings={"requests": 2_000},
    )


def litequeue(name: str, mode: str) -> Contender:
    promise = "in flight stays locked until asked for"
    return peer(name, "litequeue", promise, synchronous=mode, requests=3_000)


WORKLOAD = Workload(
    name="queue-sqlite",
    title="A queue in a file: requests of 200 B, no work, one process",
    parameters={"requests": 10_000, "workers": 100, "payload_bytes": 200, "keys": 100_000},
    quick_parameters={"keys": 20_000},
    contenders=(
        ours(OURS_FULL, "FULL"),
        ours("data_fetcher_core, NORMAL", "NORMAL"),
        peer(ACKNOWLEDGED, "persistqueue", "at least once", acknowledged=True),
        peer("persist-queue SQLiteQueue", "persistqueue", IN_FLIGHT_LOST, acknowledged=False),
        peer("huey SqliteHuey", "huey", f"{IN_FLIGHT_LOST}; one thread", workers=1),
        peer("diskcache Deque, FULL", "diskcache", IN_FLIGHT_LOST, synchronous="FULL"),
        peer("diskcache Deque, NORMAL", "diskcache", IN_FLIGHT_LOST, synchronous="NORMAL"),
        litequeue(LITEQUEUE_FULL, "FULL"),
        litequeue("litequeue, NORMAL", "NORMAL"),
        peer("queuelib FifoSQLite", "queuelib", IN_FLIGHT_LOST, requests=3_000),
        limit(LIMIT_FULL, "FULL"),
        limit("sqlite3 by hand, NORMAL", "NORMAL"),
    ),
    metrics=(
        Metric("enqueue_single", "put in one by one"),
        Metric("enqueue_bulk", "put in, the best way for many"),
        Metric(
            "drain",
            "drained",
            targets=(
                Target(10, "peers", ours=(OURS_FULL,), versus=(ACKNOWLEDGED, LITEQUEUE_FULL)),
                Target(0.4, "limits", ours=(OURS_FULL,), versus=(LIMIT_FULL,)),
            ),
        ),
        Metric("bytes_on_disk", "on disk for each queued", "B", more_is_better=False),
        Metric(
            "bytes_per_seen_key",
            "on disk for each seen key",
            "B",
            more_is_better=False,
            targets=(Target(32),),
        ),
    ),
    needs=(),
)
