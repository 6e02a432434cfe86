"""rq with its worker that does not fork: one job at a time; a kill loses or fails the job."""

from __future__ import annotations

import logging
import sys
from itertools import count as counter
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker

from benchmarks.contract import parameters, tell
from benchmarks.metering import RedisMeter, requests_of

CHUNK = 1_000
HANDLED = counter()
NAME = "benchmarks.peers.rq.nothing"


def nothing(_: str) -> None:
    next(HANDLED)


def run(given: dict[str, Any]) -> dict[str, float]:
    singles, many = requests_of(given)
    count = len(singles) + len(many)
    client = Redis.from_url(given["redis_url"])
    queue = Queue(connection=client)
    meter = RedisMeter(given["redis_url"])
    with meter.timed("enqueue_single", len(singles)):
        for item in singles:
            queue.enqueue(NAME, item, result_ttl=0)
    with meter.filling(len(many)):
        for start in range(0, len(many), CHUNK):
            some = many[start : start + CHUNK]
            queue.enqueue_many([Queue.prepare_data(NAME, (item,), result_ttl=0) for item in some])
    worker = SimpleWorker([queue], connection=client)
    with meter.draining(count):
        worker.work(burst=True, logging_level="ERROR")
    # The worker imports this module by its name: that is another one than the one that runs.
    imported = sys.modules[NAME.rpartition(".")[0]]
    assert (next(imported.HANDLED), queue.count, queue.failed_job_registry.count) == (count, 0, 0)
    client.close()
    return meter.metrics


def main() -> None:
    logging.disable(logging.WARNING)
    tell(run(parameters()))


if __name__ == "__main__":
    main()
