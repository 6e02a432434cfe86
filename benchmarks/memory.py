"""Does a long crawl need more and more memory?

Crawls a site on loopback with the whole product, on SQLite and on Redis, each in a process of its
own, and prints how much memory that process holds beyond its start, as it goes. Exits with 1
where it is over 200 MB at any time.

    python -m benchmarks.memory [--pages 200000] [--store sqlite|redis]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from benchmarks.machine import describe
from benchmarks.ours.crawl import whole
from benchmarks.servers import new_sqlite_url, running_redis
from benchmarks.site import site

BOUND = 200.0
INTERVAL = 5.0


def held() -> float:
    """The memory of this process, in MB."""
    return float(psutil.Process().memory_info().rss) / 1e6


class Watch:
    def __init__(self) -> None:
        self.start = held()
        self.most = 0.0

    async def run(self) -> None:
        begin = time.perf_counter()
        while True:
            await asyncio.sleep(INTERVAL)
            beyond = held() - self.start
            self.most = max(self.most, beyond)
            print(f"{time.perf_counter() - begin:6.0f} s: {beyond:6.1f} MB", flush=True)


async def crawl(address: str, store_url: str, folder: str, pages: int) -> float:
    watch = Watch()
    watching = asyncio.create_task(watch.run())
    fetched = await whole(address, store_url, folder)
    most = max(watch.most, held() - watch.start)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    assert fetched == pages, f"fetched {fetched} of {pages} pages"
    return most


@contextmanager
def store_url(kind: str, folder: str) -> Iterator[str]:
    if kind == "sqlite":
        yield new_sqlite_url(folder)
    else:
        with running_redis() as url:
            yield url


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=200_000)
    parser.add_argument("--store", choices=["sqlite", "redis"], action="append")
    parser.add_argument("--here", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    if chosen.here:
        address, url, folder = chosen.here
        most = asyncio.run(crawl(address, url, folder, chosen.pages))
        return 1 if most > BOUND else 0
    print(describe(), f"\n{chosen.pages:,} pages", flush=True)
    over = 0
    for kind in chosen.store or ["sqlite", "redis"]:
        print(f"\non {kind}, beyond the start:", flush=True)
        with (
            site(chosen.pages) as address,
            tempfile.TemporaryDirectory() as folder,
            store_url(kind, folder) as url,
        ):
            command = [sys.executable, "-m", "benchmarks.memory", "--pages", str(chosen.pages)]
            command += ["--here", address, url, f"{folder}/pages"]
            over += subprocess.run(command, check=False).returncode
    print("\nover" if over else f"\nat no time over {BOUND:g} MB", flush=True)
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
