"""Asking a run to stop."""

from __future__ import annotations

import anyio


class Stop:
    """Given to a run, and set by somebody else: finish what is in flight, begin nothing new."""

    def __init__(self) -> None:
        self._asked = anyio.Event()

    def ask(self) -> None:
        self._asked.set()

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    async def wait(self) -> None:
        await self._asked.wait()
