"""Who keeps the event loop from running, told while it does.

Hearts beat on the loop: a handler that blocks it for a lease loses what the process holds. Only
another thread can look meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_log = logging.getLogger("data_fetcher_core.queue")
# One long wait would also be over when the whole process was stopped, and nobody was to blame.
_LOOKS = 10
_FRAMES = 6


@contextmanager
def watched(loop: asyncio.AbstractEventLoop, lease_ttl: float) -> Iterator[None]:
    """From the loop's own thread: meanwhile it is told who blocks it for a third of a lease."""
    watch = _Watch(loop, lease_ttl)
    # Where there is no thread to be had, the heart beats unwatched.
    with suppress(RuntimeError):
        threading.Thread(target=watch.run, name="loop watch", daemon=True).start()
    try:
        yield
    finally:
        watch.over.set()


class _Watch:
    def __init__(self, loop: asyncio.AbstractEventLoop, lease_ttl: float) -> None:
        self.over = threading.Event()
        self._loop = loop
        self._loops_thread = threading.get_ident()
        self._lease_ttl = lease_ttl
        self._patience = lease_ttl / 3

    def run(self) -> None:
        while not self.over.wait(self._patience):
            answered = threading.Event()
            try:
                self._loop.call_soon_threadsafe(answered.set)
            except RuntimeError:
                return  # It is closed.
            if not self._hears(answered):
                self._tell()
                while not self._hears(answered):
                    """Once is enough."""

    def _hears(self, answered: threading.Event) -> bool:
        """Whether the loop has run since it was asked, or will not run any more."""
        looks = (answered.wait(self._patience / _LOOKS) for _ in range(_LOOKS))
        return any(looks) or self.over.is_set() or not self._loop.is_running()

    def _tell(self) -> None:
        task = asyncio.current_task(self._loop)
        _log.warning(
            "the event loop has not run for %.3g s: %s blocks it. After %g s its leases may be "
            "taken by others. Let a thread do what takes so long (asyncio.to_thread). It is "
            "here:\n%s",
            self._patience,
            "a callback" if task is None else f"the task {task.get_name()!r}",
            self._lease_ttl,
            self._stack(),
        )

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loops_thread)  # noqa: SLF001 - made for this
        return "".join(traceback.format_stack(frame, limit=_FRAMES)).rstrip()
