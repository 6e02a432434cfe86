"""What becomes of a function that was handed to the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kept:
    """It ran, and what it did is durable."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """Its caller gets this error."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Blocked:
    """It did not run: somebody else holds the store. Who, is found out only when it matters."""

    holder: Callable[[], str]


Outcome = Kept | Failed | Blocked
