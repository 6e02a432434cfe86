"""arq: a job in progress has a lock that is not renewed, and is taken up when that is gone."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from arq import Worker, create_pool, func
from arq.connections import RedisSettings

from benchmarks.contract import parameters, tell
from benchmarks.metering import RedisMeter, requests_of, share_out


async def run(given: dict[str, Any]) -> dict[str, float]:
    singles, many = requests_of(given)
    count, finished, handled = len(singles) + len(many), asyncio.Event(), 0
    settings = RedisSettings.from_dsn(given["redis_url"])

    async def nothing(_context: dict[Any, Any], _: str) -> None:
        pass

    async def after(_context: dict[Any, Any]) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            finished.set()

    pool = await create_pool(settings)
    meter = RedisMeter(given["redis_url"])
    with meter.timed("enqueue_single", len(singles)):
        for item in singles:
            await pool.enqueue_job("nothing", item)
    with meter.filling(len(many)):
        await share_out(many, given["senders"], lambda item: pool.enqueue_job("nothing", item))
    worker = Worker(
        [func(nothing, name="nothing")],
        redis_settings=settings,
        max_jobs=given["workers"],
        keep_result=0,
        poll_delay=0.01,
        after_job_end=after,
        handle_signals=False,
        burst=True,
    )
    with meter.draining(count):
        working = asyncio.create_task(worker.main())
        await finished.wait()
    await working
    assert (worker.jobs_complete, worker.jobs_failed) == (count, 0)
    await worker.close()
    await pool.aclose()
    return meter.metrics


def main() -> None:
    logging.disable(logging.WARNING)
    tell(asyncio.run(run(parameters())))


if __name__ == "__main__":
    main()
