"""Waiting for a condition instead of for time to pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from data_fetcher_core.errors import DataFetcherError


async def until(condition: Callable[[], bool], within: float = 10.0) -> None:
    """Return as soon as ``condition()`` holds; fail if it does not ``within`` so many seconds."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - nothing signals what is looked at from outside
            await asyncio.sleep(0.01)


async def failure_of(step: Awaitable[Any]) -> DataFetcherError | None:
    """The error of ours that ``step`` ends with, if it does."""
    try:
        await step
    except DataFetcherError as error:
        return error
    return None
