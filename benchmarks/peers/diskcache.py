"""diskcache's Deque in SQLite: what is popped is gone. Many go in in one transaction."""

from __future__ import annotations

from typing import Any

from diskcache import Cache, Deque

from benchmarks.contract import parameters, tell
from benchmarks.metering import FolderMeter, requests_of

SYNCHRONOUS = {"NORMAL": 1, "FULL": 2}


def opened(given: dict[str, Any]) -> Any:
    mode = SYNCHRONOUS[given["synchronous"]]
    cache = Cache(given["folder"], eviction_policy="none", sqlite_synchronous=mode)
    return Deque.fromcache(cache)


def fill(deque: Any, singles: list[str], many: list[str], meter: FolderMeter) -> None:
    with meter.timed("enqueue_single", len(singles)):
        for item in singles:
            deque.append(item)
    with meter.filling(len(many)), deque.transact():
        deque.extend(many)


def run(given: dict[str, Any]) -> dict[str, float]:
    singles, many = requests_of(given)
    count = len(singles) + len(many)
    meter = FolderMeter(given["folder"])
    opened(given).cache.close()
    meter.closed_empty()
    deque = opened(given)
    fill(deque, singles, many, meter)
    deque.cache.close()
    meter.closed_full(count)
    deque = opened(given)
    with meter.timed("drain", count):
        for _ in range(count):
            deque.popleft()
    assert len(deque) == 0
    deque.cache.close()
    return meter.metrics


def main() -> None:
    tell(run(parameters()))


if __name__ == "__main__":
    main()
