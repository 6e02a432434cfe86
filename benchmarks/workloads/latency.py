"""How soon is a request in the hands of another process?"""

from __future__ import annotations

from benchmarks.suite import Contender, Metric, Target, Workload

LEASED = "at least once, lease not renewed"
REDIS = "data_fetcher_core, Redis"


def peer(name: str, module: str, promise: str, **settings: float) -> Contender:
    return Contender(
        name,
        f"benchmarks.peers.latency.{module}",
        environment=module,
        promise=promise,
        settings=settings,
        quick_settings={name: settings[name] for name in settings if name == "idle_requests"},
    )


def wait(key: str, title: str, bound: float | None = None) -> Metric:
    targets = () if bound is None else (Target(bound, ours=(REDIS,)),)
    return Metric(key, title, "ms", more_is_better=False, targets=targets)


WORKLOAD = Workload(
    name="latency",
    title="From enqueue in one process to its lease in another",
    parameters={
        "workers": 100,
        "idle_requests": 300,
        "gap": 0.1,
        "requests": 5_000,
        "seconds": 3,
        "quiet_seconds": 5,
        "common_rate": 300,
    },
    quick_parameters={"idle_requests": 100, "requests": 2_000, "seconds": 1, "quiet_seconds": 2},
    contenders=(
        Contender(
            REDIS, "benchmarks.ours.latency", promise="at least once", settings={"store": "redis"}
        ),
        Contender(
            "data_fetcher_core, SQLite",
            "benchmarks.ours.latency",
            promise="at least once",
            settings={"store": "sqlite"},
        ),
        peer("taskiq, stream", "taskiq", "at least once, by idle time"),
        peer("saq", "saq", "at least once with a time-out"),
        peer("arq", "arq", LEASED, poll_delay=0.5, gap=0.5, idle_requests=15),
        peer("arq, polls 100 times a second", "arq", LEASED, poll_delay=0.01),
    ),
    metrics=(
        wait("idle_p50_ms", "idle, half of them within", 2.0),
        wait("idle_p99_ms", "idle, 99 of 100 within", 10.0),
        wait("common_p50_ms", "at 300 a second, half of them within"),
        wait("common_p99_ms", "at 300 a second, 99 of 100 within"),
        wait("half_p50_ms", "at half of its own most, half of them within"),
        wait("half_p99_ms", "at half of its own most, 99 of 100 within"),
        Metric("half_rate", "what half of its own most is"),
        Metric("idle_reads", "round trips while nothing happens", more_is_better=False),
    ),
)
