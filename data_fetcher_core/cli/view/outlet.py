"""A thread that writes, so that nobody else waits for a slow terminal or a reader who sleeps."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

_MOST_WAITING = 10_000
# A reader who has gone to sleep does not keep the program from ending.
_PATIENCE = 2.0

Write = Callable[[Sequence[str]], None]


def left_out_line(lines: int) -> str:
    return f"({lines} lines were left out: they came faster than they were read)"


class Outlet:
    """Hands over lines, in order, to ``write``: at once, or ``every`` so many seconds.

    ``write`` and ``finish``, which gets the last lines, run in the thread alone. When they
    cannot write any more, they are not called again.
    """

    def __init__(
        self,
        write: Write,
        *,
        every: float | None = None,
        finish: Write | None = None,
        tell_left_out: Callable[[int], str] = left_out_line,
    ) -> None:
        self._write = write
        self._tell_left_out = tell_left_out
        self._every = every
        self._finish = finish or write
        self._waiting: deque[str] = deque()
        self._left_out = 0
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="view", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        with self._changed:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append(line)
                if self._every is None:
                    self._changed.notify()
            else:
                self._left_out += 1

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        try:
            while self._wait():
                self._write(self._take())
            self._finish(self._take())
        except (OSError, ValueError):  # The reader is gone; nobody is left to be told so.
            return

    def _wait(self) -> bool:
        """Until it is time to write; whether there will be more."""
        with self._changed:
            self._changed.wait_for(self._is_time, self._every)
            return not self._closed

    def _is_time(self) -> bool:
        return self._closed or (self._every is None and bool(self._waiting))

    def _take(self) -> list[str]:
        with self._changed:
            taken, self._waiting = list(self._waiting), deque()
            left_out, self._left_out = self._left_out, 0
        if left_out:
            taken.append(self._tell_left_out(left_out))
        return taken
