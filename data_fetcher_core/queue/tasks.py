"""Tasks with an owner. The only place where one is started."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class OwnedTasks:
    """Tasks that are awaited, or cancelled and awaited, before their owner is gone."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self) -> None:
        """Wait for all of them."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def cancel(self) -> None:
        """Cancel all of them and wait until they are gone."""
        for task in set(self._tasks):
            task.cancel()
        await self.finish()
