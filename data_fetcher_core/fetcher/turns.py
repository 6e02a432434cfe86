"""The turns of a locator, as a request of the queue it feeds.

To ask a locator for more is work like any other. Its request is leased, so that it has one
owner; what the locator gave and where it then stands are kept in the step that puts the request
back for the next turn; it is taken over when its owner dies, tried again when it fails, and a
dead letter when it fails for good. A run is drained when nothing is left, turns included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from data_fetcher_core.core import Entry, Locator, RequestMeta

_FLAG = "locator"
_ADDRESS = "about:locator"
_MARK = "@"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a locator stands after so many turns. Saved as its checkpoint."""

    turn: int = 0
    exhausted: bool = False
    state: Any = None

    def to_checkpoint(self) -> dict[str, Any]:
        return asdict(self)


def locator_of(request: RequestMeta) -> str | None:
    """Which locator is to be asked, if this is a turn of one."""
    return request.flags.get(_FLAG) if request.url.scheme == "about" else None


def first_turn(locator: str) -> Entry:
    """Its key registers a locator once, whoever comes first."""
    return replace(another_turn(locator), key=turn_lane(locator))


def another_turn(locator: str) -> Entry:
    return Entry(RequestMeta(_ADDRESS, flags={_FLAG: locator}), lane=turn_lane(locator))


def turn_lane(locator: str) -> str:
    """A lane of its own; no host is called so."""
    return f"{_MARK}{locator}"


def is_turn_lane(lane: str) -> bool:
    return lane.startswith(_MARK)


def checkpoint_name(locator: str) -> str:
    return f"locator:{locator}"


def name_locators(locators: Sequence[Locator]) -> dict[str, Locator]:
    """By their place in the recipe, and their class for those who read it."""
    return {f"{at}-{type(locator).__name__}": locator for at, locator in enumerate(locators)}
