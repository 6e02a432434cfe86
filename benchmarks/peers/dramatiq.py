"""dramatiq on Redis: threads, acknowledged after the work, taken up when a worker falls silent."""

from __future__ import annotations

import logging
from itertools import count as counter
from threading import Event
from typing import Any

from dramatiq import Middleware, Worker, actor, set_broker
from dramatiq.brokers.redis import RedisBroker

from benchmarks.contract import parameters, tell
from benchmarks.metering import RedisMeter, requests_of


class Acknowledged(Middleware):
    """Knows when so many have been acknowledged."""

    def __init__(self, awaited: int) -> None:
        self._numbers = counter(1)
        self._awaited = awaited
        self.all = Event()

    def after_ack(self, *_: object) -> None:
        if next(self._numbers) == self._awaited:
            self.all.set()


def run(given: dict[str, Any]) -> dict[str, float]:
    singles, many = requests_of(given)
    count, handled = len(singles) + len(many), counter()
    broker = RedisBroker(url=given["redis_url"])
    acknowledged = Acknowledged(count)
    broker.add_middleware(acknowledged)
    set_broker(broker)

    def nothing(_: str) -> None:
        next(handled)

    task = actor(nothing)
    meter = RedisMeter(given["redis_url"])
    with meter.timed("enqueue_single", len(singles)):
        for item in singles:
            task.send(item)
    with meter.filling(len(many)):
        for item in many:
            task.send(item)
    worker = Worker(broker, worker_threads=given["workers"], worker_timeout=100)
    with meter.draining(count):
        worker.start()
        acknowledged.all.wait()
    worker.stop()
    assert next(handled) == count
    return meter.metrics


def main() -> None:
    logging.disable(logging.WARNING)
    tell(run(parameters()))


if __name__ == "__main__":
    main()
