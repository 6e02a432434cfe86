"""SIGINT and SIGTERM: the first asks the run to stop, the second stops it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskStatus

from data_fetcher_core.cli.exit_codes import ExitCode
from data_fetcher_core.fetcher import Stop

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Giving back leases takes milliseconds, unless the store is away.
_PATIENCE = 2.0


class Interruption:
    """What signals have asked for so far.

    Work is done inside ``scope``. Before ``on_stop`` is set there is nothing to finish, and the
    first signal counts as the second. If even that does not end in time, the process is left
    behind as if it were killed, which loses nothing; ``on_leave`` says the last words, and answers
    what to end with.
    """

    def __init__(self) -> None:
        self.stop = Stop()
        self.scope = anyio.CancelScope()
        self.on_stop: Callable[[], Awaitable[None]] | None = None
        self.on_leave: Callable[[], ExitCode] = lambda: ExitCode.STOPPED

    @property
    def is_asked(self) -> bool:
        return self.stop.is_asked

    async def listen(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled. Only the main thread of a process is told of signals."""
        if threading.current_thread() is not threading.main_thread():
            task_status.started()
            return
        with anyio.open_signal_receiver(*_SIGNALS) as signals:
            task_status.started()
            await anext(signals)
            self.stop.ask()
            if self.on_stop is not None:
                await self.on_stop()
                await anext(signals)
            self.scope.cancel()
            with anyio.move_on_after(_PATIENCE):
                await anext(signals)
            os._exit(self.on_leave())
