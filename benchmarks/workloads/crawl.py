"""What does it cost to be able to kill a crawl?"""

from __future__ import annotations

from benchmarks.suite import Contender, Metric, Target, Workload

BARE = "aiohttp loop"
FAST = "Crawlee, memory"


def named(how: str, store: str) -> str:
    return f"data_fetcher_core {how}, {store}"


def ours(how: str, store: str, loop: str = "asyncio") -> Contender:
    return Contender(
        named(how, store) + ("" if loop == "asyncio" else f", {loop}"),
        "benchmarks.ours.crawl",
        promise="at least once",
        settings={"how": how, "store": store.lower(), "loop": loop},
    )


def bare(name: str, loop: str) -> Contender:
    return Contender(
        name, "benchmarks.limits.crawl", promise="everything lost", settings={"loop": loop}
    )


def peer(name: str, module: str, environment: str, frontier: str, promise: str) -> Contender:
    """Those of a few hundred pages a second crawl fewer, or it would take minutes. Not too few:
    with 500 their start-up costs them up to two fifths, from 2,000 on it is lost in the noise."""
    fast = name == FAST
    return Contender(
        name,
        f"benchmarks.peers.{module}",
        environment=environment,
        promise=promise,
        settings={"frontier": frontier} | ({} if fast else {"pages": 6_000}),
        quick_settings={} if fast else {"pages": 2_000},
    )


PAGES_PER_SECOND = Metric(
    "pages_per_second",
    "pages fetched",
    targets=(
        Target(
            0.75,
            "limits",
            ours=(named("minimal", "SQLite"), named("minimal", "Redis")),
            versus=(BARE,),
        ),
        Target(0.5, "limits", ours=(named("whole", "SQLite"),), versus=(BARE,)),
        Target(8, "peers", ours=(named("whole", "SQLite"),), versus=("Scrapy, JOBDIR",)),
    ),
)
# It grows with the pages where they are remembered in memory: 79 MB with 6,000 and 122 MB with
# 20,000 for Crawlee. So who crawls fewer looks better than it is.
PEAK_MEMORY = Metric("peak_memory_mb", "peak memory", "MB", more_is_better=False)
OURS = (
    ours("minimal", "SQLite"),
    ours("minimal", "Redis"),
    ours("whole", "SQLite"),
    ours("whole", "Redis"),
    ours("minimal", "SQLite", "uvloop"),
    ours("whole", "SQLite", "uvloop"),
)
LIMITS = (bare(BARE, "asyncio"), bare(f"{BARE}, uvloop", "uvloop"))

WORKLOAD = Workload(
    name="crawl",
    title="A crawl of 2 KB pages on loopback, 64 at a time; slow peers crawl fewer pages",
    parameters={"pages": 20_000, "concurrency": 64, "site_kind": "bare"},
    quick_parameters={"pages": 4_000},
    contenders=(
        *OURS,
        peer(FAST, "crawlee", "crawlee", "memory", "everything lost"),
        peer("Crawlee, file system", "crawlee", "crawlee", "file", "at least once"),
        peer("Scrapy, memory", "scrapy", "scrapy", "memory", "everything lost"),
        peer("Scrapy, JOBDIR", "scrapy", "scrapy", "jobdir", "what waits is lost"),
        peer("scrapy-redis", "scrapy", "scrapy-redis", "redis", "what is in flight is lost"),
        *LIMITS,
    ),
    metrics=(PAGES_PER_SECOND, PEAK_MEMORY),
    needs=("redis", "site"),
)
