"""Waiting for whichever comes first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio


async def race(here: Callable[[], Awaitable[None]], *beside: Callable[[], Awaitable[None]]) -> None:
    """Return when the first of them does, and end the others; its error leaves as it is.

    One of them needs no task of its own: somebody waits for it anyway.
    """
    failures: list[Exception] = []
    async with anyio.create_task_group() as group:

        async def run(wait: Callable[[], Awaitable[None]]) -> None:
            try:
                await wait()
            except Exception as error:  # noqa: BLE001 - raised below, out of the group
                failures.append(error)
            group.cancel_scope.cancel()

        for wait in beside:
            group.start_soon(run, wait)
        await run(here)
    if failures:
        # Taken out: an error that its own traceback holds is kept until garbage is collected.
        raise failures.pop(0)
