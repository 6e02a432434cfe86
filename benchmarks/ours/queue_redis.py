"""Our queue on Redis: 100 workers of one process that lease one by one."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from benchmarks.contract import parameters, tell
from benchmarks.metering import RedisMeter, requests_of
from benchmarks.ours.queue_phases import check_completed, drain, fill, leave_seen_keys
from data_fetcher_core import QueueOptions, open_queue
from data_fetcher_core.queue import JSONSerializer


async def measure_requests(given: dict[str, Any], meter: RedisMeter) -> None:
    singles, many = requests_of(given)
    count = len(singles) + len(many)
    url = given["redis_url"]
    async with open_queue(url, run_id="requests", serializer=JSONSerializer()) as queue:
        await fill(queue, singles, many, meter)
        with meter.draining(count):
            await drain(queue, given["workers"])
        await check_completed(queue, count)


async def measure_seen_keys(given: dict[str, Any], meter: RedisMeter) -> None:
    """With as many keys as the run was told to expect."""
    keys, url = given["keys"], given["redis_url"]
    before = meter.stored_bytes()
    options = QueueOptions(expected_keys=keys)
    async with open_queue(
        url, run_id="keys", serializer=JSONSerializer(), options=options
    ) as queue:
        await leave_seen_keys(queue, keys, given["workers"], given["payload_bytes"])
    meter.metrics["bytes_per_seen_key"] = (meter.stored_bytes() - before) / keys


async def run(given: dict[str, Any]) -> dict[str, float]:
    meter = RedisMeter(given["redis_url"])
    await measure_requests(given, meter)
    await measure_seen_keys(given, meter)
    return meter.metrics


def main() -> None:
    logging.disable(logging.WARNING)
    tell(asyncio.run(run(parameters())))


if __name__ == "__main__":
    main()
