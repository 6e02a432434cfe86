"""After ``kill -9``: how soon does it go on, and what is lost?

Two kinds of contenders: queues that are filled, killed and opened again, and crawls that are killed
when the site has been asked for 40 % of its pages, and begun again. The site counts what it is
asked for; each of its pages is linked from one other alone, so that no second link hides a loss.
"""

from __future__ import annotations

from benchmarks.suite import Contender, Metric, Target, Workload

QUEUE = "data_fetcher_core queue, {}"
CRAWL = "data_fetcher_core crawl, {}"
STORES = ("SQLite", "Redis")


def opened(store: str) -> Contender:
    return Contender(
        QUEUE.format(store),
        "benchmarks.ours.resume",
        promise="at least once",
        settings={"store": store.lower(), "pages": 1},
    )


def killed(store: str) -> Contender:
    return Contender(
        CRAWL.format(store),
        "benchmarks.ours.crawl",
        promise="at least once",
        settings={"how": "whole", "store": store.lower(), "loop": "asyncio", "kill_at": 0.4},
    )


def peer(name: str, module: str, environment: str, frontier: str) -> Contender:
    return Contender(
        name,
        f"benchmarks.peers.{module}",
        environment=environment,
        promise="as measured",
        settings={"frontier": frontier, "kill_at": 0.4},
    )


def none(key: str, title: str) -> Metric:
    target = Target(0, ours=tuple(map(CRAWL.format, STORES)))
    return Metric(key, title, "pages", more_is_better=False, targets=(target,))


WORKLOAD = Workload(
    name="resume",
    title="Killed with kill -9, and begun again",
    parameters={
        "sizes": [10_000, 100_000, 1_000_000],
        "payload_bytes": 200,
        "lanes": 100,
        "in_flight": 64,
        "pages": 2_000,
        "site_kind": "deep",
        "concurrency": 64,
    },
    quick_parameters={"sizes": [10_000, 100_000]},
    contenders=(
        *map(opened, STORES),
        *map(killed, STORES),
        peer("Crawlee, file system", "crawlee", "crawlee", "file"),
        peer("Scrapy, JOBDIR", "scrapy", "scrapy", "jobdir"),
        peer("scrapy-redis", "scrapy", "scrapy-redis", "redis"),
    ),
    metrics=(
        Metric(
            "first_lease_s",
            "from the start of the process to its first lease",
            "s",
            more_is_better=False,
            targets=(Target(1.0, ours=tuple(map(QUEUE.format, STORES)), point="1000000"),),
            axis="requests queued",
        ),
        Metric(
            "own_s",
            "of that, after its imports",
            "s",
            more_is_better=False,
            axis="requests queued",
        ),
        none("lost", "pages never asked for"),
        none("never_processed", "pages never seen to"),
        Metric("fetched_again", "pages asked for again", "pages", more_is_better=False),
    ),
    needs=("redis", "site"),
    timeout=600.0,
)
