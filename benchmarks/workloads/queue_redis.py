"""A queue on Redis, used by one process: what goes in, what comes out, what it costs the server.

Every contender drains no-op requests with 100 in flight, or as many as suit it best: measured, and
said in its settings. All of them have hiredis where they can use it, and the event loop of Python.
"""

from __future__ import annotations

from typing import Any

from benchmarks.suite import Contender, Metric, Target, Workload

CYCLE = "Lua by hand: push, lease, settle"
MANY = {"requests": 50_000}
QUICK_MANY = {"requests": 10_000}


def peer(name: str, promise: str, quick_requests: int = 2_000, **settings: Any) -> Contender:
    return Contender(
        name,
        f"benchmarks.peers.{name}",
        environment=name,
        promise=promise,
        settings=settings,
        quick_settings={"requests": quick_requests},
    )


def limit(name: str, *, cycle: bool) -> Contender:
    return Contender(
        name,
        "benchmarks.limits.queue_redis",
        promise="leases are never taken up",
        settings={**MANY, "batch": 100, "cycle": cycle},
        quick_settings=QUICK_MANY,
    )


def cost(key: str, title: str, unit: str, *targets: Target) -> Metric:
    return Metric(key, title, unit, more_is_better=False, targets=targets)


WORKLOAD = Workload(
    name="queue-redis",
    title="A queue on Redis: requests of 200 B, no work, one process",
    parameters={"requests": 10_000, "workers": 100, "payload_bytes": 200, "keys": 100_000},
    quick_parameters={"keys": 20_000},
    contenders=(
        Contender(
            "data_fetcher_core",
            "benchmarks.ours.queue_redis",
            promise="at least once; 100 workers that lease one by one",
            settings=MANY,
            quick_settings=QUICK_MANY,
        ),
        peer("taskiq", "at least once, after ten idle minutes; 100 tasks", senders=20),
        peer("dramatiq", "at least once, after a minute of silence; 32 threads", workers=32),
        peer(
            "arq",
            "at least once, the lock is not renewed; 20 jobs",
            workers=20,
            senders=20,
            requests=5_000,
        ),
        peer(
            "saq",
            "at least once, after a time-out; 20 jobs",
            workers=20,
            senders=20,
            requests=5_000,
        ),
        peer("streaq", "at least once; 10 tasks", workers=10, requests=4_000),
        peer("huey", "at most once; 10 threads", workers=10),
        peer("rq", "a kill loses or fails the job; one by one", 400, requests=1_500),
        limit("Lua by hand: lease, settle", cycle=False),
        limit(CYCLE, cycle=True),
    ),
    metrics=(
        Metric("enqueue_single", "put in one by one"),
        Metric("enqueue_bulk", "put in, the best way for many", targets=(Target(8, "peers"),)),
        Metric(
            "drain",
            "drained",
            targets=(Target(10, "peers"), Target(0.35, "limits", versus=(CYCLE,))),
        ),
        cost("round_trips_per_drained", "round trips for each drained", "", Target(0.1)),
        cost("commands_per_drained", "Redis commands for each drained", ""),
        cost("bytes_per_queued", "Redis memory for each queued", "B", Target(280)),
        cost("bytes_per_seen_key", "Redis memory for each seen key", "B", Target(32)),
    ),
)
