"""Events as sentences, for those that a person should know of. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from data_fetcher_core.cli.view import figures
from data_fetcher_core.events import (
    Buried,
    ConsumerReaped,
    Event,
    GoesOn,
    HeartbeatMissed,
    LaneRecovered,
    LaneShut,
    LeasesLost,
    Paused,
    StepsForgotten,
)

_SENTENCES: Mapping[type, Callable[[Any], str]] = {
    Paused: lambda event: f"PAUSED, nothing is lost: {event.reason}",
    GoesOn: lambda _: "there is room again, the run goes on",
    LaneShut: lambda event: (
        f"{event.lane} is left alone for {figures.duration(event.duration)}: {event.reason}"
    ),
    LaneRecovered: lambda event: f"{event.lane} answers again",
    Buried: lambda event: f"dead letter: {event.detail}",
    ConsumerReaped: lambda event: (
        f"another process died; what it had in flight is ready again ({_requests(event.leases)})"
    ),
    LeasesLost: lambda event: (
        f"this process was taken for dead and lost {_requests(len(event.request_ids))}; "
        "they may be fetched twice"
    ),
    HeartbeatMissed: lambda event: (
        f"the store could not be told that this process lives: {event.error}"
    ),
    StepsForgotten: lambda event: (
        f"the store has forgotten {figures.count(event.steps)} steps or more, and came back with "
        "older data: pages may be fetched twice, links may be missing"
    ),
}
# These are about the whole run, and not about one host or page.
OF_THE_RUN = (Paused, GoesOn, ConsumerReaped, LeasesLost, HeartbeatMissed, StepsForgotten)


def is_told(event: Event) -> bool:
    return type(event) in _SENTENCES


def sentence(event: Event) -> str:
    return _SENTENCES[type(event)](event)


def _requests(number: int) -> str:
    return "1 request" if number == 1 else f"{figures.count(number)} requests"
