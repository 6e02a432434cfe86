"""arq: its worker looks for jobs every ``poll_delay`` seconds."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from arq import Worker, create_pool, func
from arq.connections import RedisSettings

from benchmarks.latency import Arrivals, Send, contend


@asynccontextmanager
async def sending(given: dict[str, Any]) -> AsyncIterator[Send]:
    pool = await create_pool(RedisSettings.from_dsn(given["redis_url"]))
    yield lambda text: pool.enqueue_job("handle", text)
    await pool.aclose()


async def consume(given: dict[str, Any], arrivals: Arrivals) -> None:
    async def handle(_context: dict[Any, Any], text: str) -> None:
        arrivals.take(text)

    async def ready(_context: dict[Any, Any]) -> None:
        arrivals.ready()

    worker = Worker(
        [func(handle, name="handle")],
        redis_settings=RedisSettings.from_dsn(given["redis_url"]),
        max_jobs=given["workers"],
        keep_result=0,
        poll_delay=given["poll_delay"],
        on_startup=ready,
        handle_signals=False,
    )
    await worker.main()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    contend("benchmarks.peers.latency.arq", sending, consume)
