"""What does waiting cost, and how soon does it end?

One process waits for work; another enqueues one request at a time. Prints how many commands the
waiting consumer sent to Redis per second while nothing happened, and how long a request took from
``enqueue`` in one process to the lease in the other. Exits with 1 where a bound is not met: one
command a second, 15 ms (Redis), 150 ms (SQLite across processes).

    python -m benchmarks.idle [--store sqlite|redis] [--seconds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import statistics
import subprocess
import sys
import time

import redis.asyncio

from benchmarks.machine import describe
from benchmarks.scale import store_url
from data_fetcher_core import open_queue
from data_fetcher_core.queue import JSONSerializer

BOUNDS = {"redis": 0.015, "sqlite": 0.150}
REQUESTS = 60


async def wait_and_report(url: str) -> None:
    """The child: print how old each request is when it arrives."""
    logging.disable(logging.WARNING)
    async with open_queue(url, run_id="idle", serializer=JSONSerializer()) as queue:
        print("ready", flush=True)
        async for lease in queue.leases():
            async with lease:
                print(time.time() - lease.item["sent_at"], flush=True)
                if lease.item["last"]:
                    return


async def latencies(url: str, child: subprocess.Popen[str]) -> list[float]:
    assert child.stdout is not None
    found = []
    async with open_queue(url, run_id="idle", serializer=JSONSerializer()) as queue:
        for number in range(REQUESTS):
            await asyncio.sleep(0.03 + 0.013 * (number % 7))
            last = number == REQUESTS - 1
            await queue.enqueue([{"sent_at": time.time(), "last": last}])
            line = await asyncio.to_thread(child.stdout.readline)
            found.append(float(line))
    return found


async def commands_per_second(url: str, seconds: float) -> float:
    """What arrives at the server, as it reports it itself; scripts' own commands do not count."""
    arrived = 0
    async with (
        redis.asyncio.Redis.from_url(url, socket_timeout=None) as server,
        server.monitor() as monitor,
    ):
        await asyncio.sleep(2.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for seen in monitor.listen():
                    arrived += seen["client_type"] != "lua"
    return arrived / seconds


def run(store: str, seconds: float) -> bool:
    with store_url(store) as url:
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.idle", "--child", url],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert child.stdout is not None
            child.stdout.readline()
            rate = asyncio.run(commands_per_second(url, seconds)) if store == "redis" else 0.0
            ages = asyncio.run(latencies(url, child))
        finally:
            child.terminate()
            child.wait(10)
    typical, worst = statistics.median(ages), sorted(ages)[int(len(ages) * 0.95)]
    print(
        f"{store:7} from enqueue to lease in another process: median {typical * 1e3:.1f} ms, "
        f"95 of 100 within {worst * 1e3:.1f} ms (bound {BOUNDS[store] * 1e3:.0f} ms)"
    )
    if store == "redis":
        print(f"{store:7} commands of an idle consumer: {rate:.2f} a second (bound 1)")
    return worst <= BOUNDS[store] and rate <= 1.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--store", choices=["sqlite", "redis"], action="append")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        asyncio.run(wait_and_report(chosen.child))
        return
    print(describe(), flush=True)
    passed = [run(store, chosen.seconds) for store in chosen.store or ["sqlite", "redis"]]
    raise SystemExit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
