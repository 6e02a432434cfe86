"""One JSON object per line, for programs that read logs."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from data_fetcher_core.cli.view.logs import Logs
from data_fetcher_core.cli.view.outlet import Outlet
from data_fetcher_core.cli.view.showable import without_credentials
from data_fetcher_core.cli.view.streams import line_writer
from data_fetcher_core.cli.view.tally import Picture, Tally
from data_fetcher_core.cli.view.watching import Look, keep_looking
from data_fetcher_core.clock import SYSTEM_CLOCK, Clock
from data_fetcher_core.events import (
    Event,
    Fed,
    Fetched,
    GoesOn,
    LaneRecovered,
    LeasesReturned,
    NotFetched,
    Retried,
)

_EVERY = 5.0
_TOO_MANY = (Fetched, NotFetched, Fed)
_AS_IT_SHOULD = (Retried, LeasesReturned, LaneRecovered, GoesOn)
_HUMP = re.compile(r"(?<!^)(?=[A-Z])")


class JsonView:
    """Each line has ``at``, ``level`` and ``event``; the other fields belong to the event."""

    def __init__(
        self,
        stream: TextIO,
        *,
        clock: Clock = SYSTEM_CLOCK,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._tally = Tally(clock.monotonic)
        self._due = clock.monotonic()
        self._outlet = Outlet(
            line_writer(stream),
            tell_left_out=lambda lines: self._line("warning", "left_out", {"lines": lines}),
        )
        self._logs = Logs(self._log)
        self._logs.begin()

    def __call__(self, event: Event) -> None:
        self._tally.note(event)
        if isinstance(event, _TOO_MANY):
            return
        level = "info" if isinstance(event, _AS_IT_SHOULD) else "warning"
        self._put(level, event_name(event), asdict(event))

    async def watch(self, look: Look) -> None:
        await keep_looking(look, self._tally, self._clock, self._looked)

    def say(self, line: str, *, problem: bool = False) -> None:
        self._put("warning" if problem else "info", "message", {"text": line})

    def close(self) -> None:
        self._logs.end()
        self._outlet.close()

    def _looked(self) -> None:
        if self._clock.monotonic() < self._due:
            return
        self._due = self._clock.monotonic() + _EVERY
        picture = self._tally.picture()
        level = "info" if picture.trouble is None else "warning"
        self._put(level, "progress", progress_fields(picture))

    def _log(self, record: logging.LogRecord) -> None:
        fields = {"logger": record.name, "text": record.getMessage()}
        if record.exc_info and record.exc_info[0] is not None:
            fields["error"] = logging.Formatter().formatException(record.exc_info)
        self._put(record.levelname.lower(), "log", fields)

    def _put(self, level: str, name: str, fields: Mapping[str, Any]) -> None:
        self._outlet.put(self._line(level, name, fields))

    def _line(self, level: str, name: str, fields: Mapping[str, Any]) -> str:
        return json_line(self._wall(), level, name, fields)


def json_line(at: float, level: str, name: str, fields: Mapping[str, Any]) -> str:
    instant = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    line = {"at": instant.replace("+00:00", "Z"), "level": level, "event": name}
    line |= {key: _clean(value) for key, value in fields.items()}
    return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def event_name(event: Event) -> str:
    return _HUMP.sub("_", type(event).__name__).lower()


def progress_fields(picture: Picture) -> dict[str, Any]:
    stats = picture.stats
    return {
        "elapsed": round(picture.elapsed, 3),
        "done": picture.done,
        "known": picture.known,
        "ready": stats.ready,
        "delayed": stats.delayed,
        "in_flight": stats.leased,
        "dead": stats.dead,
        "retried": stats.retried,
        "skipped": picture.skipped,
        "pages_per_second": _rounded(picture.recent_rate),
        "pages_per_second_on_average": _rounded(picture.average_rate),
        "seconds_left": _rounded(picture.seconds_left),
        "bytes": picture.received,
        "statuses": dict(picture.statuses),
        "gated_hosts": len(picture.shut),
        "paused": picture.paused,
        "store_trouble": picture.trouble,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _clean(value: Any) -> Any:
    """JSON escapes what a terminal would obey; what is left to do is to keep secrets."""
    if isinstance(value, str):
        return without_credentials(value).encode("utf-8", "replace").decode()
    return value
