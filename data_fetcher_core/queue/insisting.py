"""Asking a store again until it answers, within a bound. Operation ids make that safe."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import anyio

from data_fetcher_core.deadlines import Deadline, within
from data_fetcher_core.errors import StoreUnavailable

T = TypeVar("T")
# A store that swallows one call is asked again while there is time, on another connection.
_ATTEMPTS_WITHIN_BOUND = 3
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5


async def insist(
    ask: Callable[[], Awaitable[T]],
    op_timeout: float,
    waited: float = 0.0,
    bounded: Callable[[float], Deadline] = within,
) -> T:
    """The store's answer, or :class:`StoreUnavailable` once ``op_timeout`` is over."""
    now = asyncio.get_running_loop().time
    deadline, share = now() + op_timeout - waited, op_timeout / _ATTEMPTS_WITHIN_BOUND
    failure: StoreUnavailable | None = None
    try:
        for pause in _pauses():
            bound = min(share, deadline - now())
            try:
                with bounded(bound):
                    return await ask()
            except TimeoutError:
                # An attempt cut short by the deadline does not hide what was said before it.
                if failure is None or bound == share:
                    failure = StoreUnavailable(f"the store did not answer within {op_timeout:g} s")
            except StoreUnavailable as error:
                failure = error
            await anyio.sleep(max(0.0, min(pause, deadline - now())))
            # A process that was stopped meanwhile asks no more. It may have been taken for dead,
            # and what it asked before was forgotten with it: the same would be done once more.
            if deadline <= now():
                raise failure
        raise AssertionError("unreachable")
    finally:
        # An error that its own traceback holds is kept, with all who wait for it and the leases
        # that they were settling, until garbage is collected.
        failure = None


def _pauses() -> Iterator[float]:
    """Full jitter, so that many clients do not come back at one instant."""
    ceiling = _FIRST_PAUSE
    while True:
        yield ceiling * random.random()  # noqa: S311 - spreads load, hides nothing
        ceiling = min(ceiling * 2, _LONGEST_PAUSE)
