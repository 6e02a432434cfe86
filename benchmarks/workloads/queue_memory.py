"""The queue where nothing but Python limits it."""

from __future__ import annotations

from benchmarks.suite import Contender, Metric, Target, Workload

WORKLOAD = Workload(
    name="queue-memory",
    title="A queue in memory: put in, taken out, settled",
    parameters={"requests": 50_000, "workers": 100, "batch": 100, "payload_bytes": 200},
    quick_parameters={"requests": 10_000},
    contenders=(
        Contender(
            "data_fetcher_core",
            "benchmarks.ours.queue_memory",
            promise="at least once, while the process lives",
        ),
        Contender(
            "asyncio.Queue",
            "benchmarks.limits.queue_memory",
            promise="taken is gone",
            settings={"queue": "Queue"},
        ),
        Contender(
            "asyncio.PriorityQueue",
            "benchmarks.limits.queue_memory",
            promise="taken is gone",
            settings={"queue": "PriorityQueue"},
        ),
    ),
    metrics=(
        Metric("cycle_batch", "whole cycles, in batches of 100", targets=(Target(60_000),)),
        Metric("cycle_single", "whole cycles, one by one, 100 workers", targets=(Target(20_000),)),
    ),
    needs=(),
)
