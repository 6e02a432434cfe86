"""What does waiting cost?

A consumer waits for work on Redis while nothing happens. Prints how many commands it sent in a
second; exits with 1 above one.

    python -m benchmarks.idle [--seconds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import subprocess
import sys

import redis.asyncio

from benchmarks.machine import describe
from benchmarks.servers import running_redis
from data_fetcher_core import open_queue

BOUND = 1.0


async def wait_for_work(url: str) -> None:
    """The child."""
    logging.disable(logging.WARNING)
    async with open_queue(url, run_id="idle") as queue:
        print("ready", flush=True)
        await queue.lease(wait=3_600.0)


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


def measure(seconds: float) -> float:
    with running_redis() as url:
        command = [sys.executable, "-m", "benchmarks.idle", "--child", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            try:
                assert child.stdout is not None
                child.stdout.readline()
                return asyncio.run(commands_per_second(url, seconds))
            finally:
                child.terminate()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        asyncio.run(wait_for_work(chosen.child))
        return 0
    print(describe(), flush=True)
    rate = measure(chosen.seconds)
    print(f"commands of an idle consumer: {rate:.2f} a second (bound {BOUND:g})")
    return 0 if rate <= BOUND else 1


if __name__ == "__main__":
    raise SystemExit(main())
