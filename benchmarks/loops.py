"""The event loop a contender asks for: ``asyncio``, or ``uvloop``."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_on(loop: str, work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_factory(loop)) as runner:
        return runner.run(work)


def _factory(loop: str) -> Any:
    if loop == "asyncio":
        return None
    import uvloop  # noqa: PLC0415 - only who asks for it needs it

    return uvloop.new_event_loop
