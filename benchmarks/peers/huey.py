"""huey on Redis or in SQLite: threads that take a task out and then do it, so a kill loses it."""

from __future__ import annotations

import logging
from itertools import count as counter
from pathlib import Path
from threading import Event
from typing import Any

from huey import RedisHuey, SqliteHuey
from huey.signals import SIGNAL_COMPLETE

from benchmarks.contract import parameters, tell
from benchmarks.metering import FolderMeter, Meter, RedisMeter, requests_of


class Completed:
    """Knows when so many have been completed."""

    def __init__(self, awaited: int) -> None:
        self._numbers = counter(1)
        self._awaited = awaited
        self.all = Event()

    def __call__(self, *_: object) -> None:
        if next(self._numbers) == self._awaited:
            self.all.set()


def nothing(_: str) -> None:
    pass


def fill(huey: Any, singles: list[str], many: list[str], meter: Meter) -> None:
    task = huey.task(name="nothing")(nothing)
    with meter.timed("enqueue_single", len(singles)):
        for item in singles:
            task(item)
    with meter.filling(len(many)):
        task.map(many)


def consumer_of(huey: Any, count: int, threads: int) -> tuple[Any, Completed]:
    completed = Completed(count)
    huey.signal(SIGNAL_COMPLETE)(completed)
    consumer = huey.create_consumer(
        workers=threads, periodic=False, initial_delay=0.01, max_delay=0.01, backoff=1
    )
    return consumer, completed


def on_redis(given: dict[str, Any]) -> dict[str, float]:
    singles, many = requests_of(given)
    count = len(singles) + len(many)
    huey = RedisHuey(url=given["redis_url"], results=False)
    meter = RedisMeter(given["redis_url"])
    fill(huey, singles, many, meter)
    consumer, completed = consumer_of(huey, count, given["workers"])
    with meter.draining(count):
        consumer.start()
        completed.all.wait()
    consumer.stop(graceful=True)
    assert len(huey) == 0
    return meter.metrics


def in_sqlite(given: dict[str, Any]) -> dict[str, float]:
    singles, many = requests_of(given)
    count = len(singles) + len(many)
    meter = FolderMeter(given["folder"])
    file = Path(given["folder"]) / "huey.db"
    huey = SqliteHuey(filename=str(file), fsync=True, results=False)
    huey.storage.close()
    meter.closed_empty()
    fill(huey, singles, many, meter)
    huey.storage.close()
    meter.closed_full(count)
    consumer, completed = consumer_of(huey, count, given["workers"])
    with meter.timed("drain", count):
        consumer.start()
        completed.all.wait()
    consumer.stop(graceful=True)
    assert len(huey) == 0
    return meter.metrics


def main() -> None:
    logging.disable(logging.WARNING)
    given = parameters()
    tell(on_redis(given) if given["workload"] == "queue-redis" else in_sqlite(given))


if __name__ == "__main__":
    main()
