"""From what a caller asks of a lane to the change that a store makes."""

from __future__ import annotations

from data_fetcher_core.queue.engine import USE_DEFAULT, LaneChange
from data_fetcher_core.queue.entries import check_count, check_duration, read_lanes
from data_fetcher_core.queue.options import microseconds


def shut_for(lane: str, duration: float) -> LaneChange:
    return LaneChange(_read(lane), shut=microseconds(check_duration(duration, "duration")))


def reopened(lane: str) -> LaneChange:
    return LaneChange(_read(lane), reopen=True)


def limited(lane: str, most: int | None) -> LaneChange:
    return LaneChange(_read(lane), limit=_count(most, "most"))


def paced(lane: str, interval: float | None, burst: int | None, limit: int | None) -> LaneChange:
    return LaneChange(
        _read(lane),
        interval=_duration(interval, "interval"),
        burst=_count(burst, "burst"),
        limit=_count(limit, "limit"),
    )


def _read(lane: str) -> bytes:
    return read_lanes([lane])[0]


def _count(value: int | None, name: str) -> int:
    return USE_DEFAULT if value is None else check_count(value, name)


def _duration(value: float | None, name: str) -> int:
    return USE_DEFAULT if value is None else microseconds(check_duration(value, name))
