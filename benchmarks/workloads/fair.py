"""How long do small lanes wait behind a large one?"""

from __future__ import annotations

from benchmarks.suite import Contender, Metric, Workload


def ours(name: str, store: str, *, fair: bool) -> Contender:
    return Contender(
        name,
        "benchmarks.ours.fair",
        promise="at least once",
        settings={"store": store, "fair": fair},
    )


def waiting(key: str, title: str, unit: str) -> Metric:
    return Metric(key, title, unit, more_is_better=False)


WORKLOAD = Workload(
    name="fair",
    title="1,000 lanes, one of them with 90 % of the requests: how the others are served",
    parameters={"requests": 20_000, "lanes": 1_000, "share": 0.9, "workers": 64, "work_ms": 5},
    quick_parameters={"requests": 20_000},
    contenders=(
        ours("data_fetcher_core, SQLite", "sqlite", fair=True),
        ours("data_fetcher_core, Redis", "redis", fair=True),
        ours("data_fetcher_core, SQLite, fair=False", "sqlite", fair=False),
        Contender("first in, first out", "benchmarks.limits.fair", promise="none"),
    ),
    metrics=(
        waiting("wait_p50_leases", "the others wait, half of them less", "leases"),
        waiting("wait_p99_leases", "the others wait, 99 of 100 less", "leases"),
        waiting("wait_p50_s", "the others wait, half of them less", "s"),
        waiting("wait_p99_s", "the others wait, 99 of 100 less", "s"),
        Metric("jain", "Jain's fairness index, 1 is best", ""),
    ),
)
