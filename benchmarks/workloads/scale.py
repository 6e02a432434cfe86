"""Does a lease cost more when there is more of everything? The lines must be flat."""

from __future__ import annotations

from benchmarks.suite import Contender, Metric, Target, Workload


def ours(store: str) -> Contender:
    return Contender(
        f"data_fetcher_core, {store}",
        "benchmarks.ours.scale",
        promise="at least once",
        settings={"store": store.lower()},
    )


def cost(key: str, title: str, axis: str, target: Target) -> Metric:
    return Metric(key, title, "µs", more_is_better=False, targets=(target,), axis=axis)


WORKLOAD = Workload(
    name="scale",
    title="The cost of a lease and its settlement, ten at a time",
    parameters={
        "requests": [1_000, 10_000, 200_000, 1_000_000],
        "few_lanes": 10,
        "lanes": [10, 1_000, 100_000],
        "fixed_requests": 200_000,
        "batch": 10,
        "turns": 80,
        "payload_bytes": 200,
    },
    quick_parameters={
        "requests": [1_000, 10_000, 50_000],
        "lanes": [10, 1_000, 25_000],
        "fixed_requests": 50_000,
    },
    contenders=(ours("SQLite"), ours("Redis")),
    metrics=(
        cost(
            "lease_us",
            "each, in 10 lanes",
            "requests queued",
            Target(1.5, "itself", point="1000000", base="1000"),
        ),
        cost(
            "lane_us",
            "each, of 200,000 requests",
            "lanes",
            Target(2.0, "itself", point="100000", base="10"),
        ),
    ),
    timeout=600.0,
)
