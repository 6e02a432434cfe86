"""Do several processes on one Redis drain more than one?"""

from __future__ import annotations

from benchmarks.suite import Contender, Metric, Target, Workload

WORKLOAD = Workload(
    name="processes",
    title="Several processes on one Redis, 100 workers each that lease one by one",
    parameters={
        "processes": [1, 2, 4],
        "requests": 40_000,
        "workers": 100,
        "lanes": 100,
        "payload_bytes": 200,
        "store": "redis",
    },
    quick_parameters={"requests": 10_000},
    contenders=(
        Contender("data_fetcher_core", "benchmarks.ours.processes", promise="at least once"),
    ),
    metrics=(
        Metric(
            "drained",
            "drained by all together",
            targets=(Target(1.5, "itself", point="2", base="1"),),
            axis="processes",
        ),
        Metric(
            "end_noticed_s",
            "from the last settlement until all know that nothing is left",
            "s",
            more_is_better=False,
            axis="processes",
        ),
    ),
)
