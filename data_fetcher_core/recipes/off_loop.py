"""Where a page is parsed: a small one at once, a large one in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

_T = TypeVar("_T")

LARGE = 256 * 1024
# More would only take turns with the event loop, and make each of its turns later.
_AT_ONCE = 2
_limiter: RunVar[CapacityLimiter] = RunVar("data_fetcher_core.recipes.off_loop")


async def parsed(size: int, parse: Callable[[], _T]) -> _T:
    """What ``parse`` makes of so many bytes."""
    if size <= LARGE:
        return parse()
    return await to_thread.run_sync(parse, limiter=_few_threads())


def _few_threads() -> CapacityLimiter:
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = CapacityLimiter(_AT_ONCE)
        _limiter.set(limiter)
    return limiter
