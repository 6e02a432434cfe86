"""Log records go through the view while it is open, and not over it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TextIO

Show = Callable[[logging.LogRecord], None]
_MOST_SEEN = 100


class Logs(logging.Handler):
    """Takes the place of the handlers that write to the terminal; the others stay."""

    def __init__(self, show: Show) -> None:
        super().__init__(logging.WARNING)
        self._show = show
        self._root = logging.getLogger()
        self._displaced: list[logging.Handler] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._show(record)
        except Exception:  # noqa: BLE001 - as every handler does: a log line breaks nothing
            self.handleError(record)

    def begin(self) -> None:
        self._displaced = [old for old in self._root.handlers if _is_on_terminal(old)]
        for old in self._displaced:
            self._root.removeHandler(old)
        self._root.addHandler(self)
        logging.captureWarnings(True)

    def end(self) -> None:
        logging.captureWarnings(False)
        self._root.removeHandler(self)
        for old in self._displaced:
            self._root.addHandler(old)
        self._displaced = []


def _is_on_terminal(handler: logging.Handler) -> bool:
    own: tuple[TextIO | None, ...] = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return isinstance(handler, logging.StreamHandler) and handler.stream in own


class LogTexts:
    """Records as text. A trace is shown once; after that, only its last line."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._formatter = logging.Formatter()

    def text(self, record: logging.LogRecord) -> str:
        said = f"{record.levelname.lower()}: {record.getMessage()}"
        if not record.exc_info or record.exc_info[0] is None:
            return said
        trace = self._formatter.formatException(record.exc_info)
        if self._is_new(record, trace):
            return f"{said}\n{trace}"
        return f"{said}: {trace.splitlines()[-1]}"

    def _is_new(self, record: logging.LogRecord, trace: str) -> bool:
        """By where it was raised: what it says differs from page to page."""
        where = "\n".join(line for line in trace.splitlines() if line.startswith("  File"))
        if where in self._seen or len(self._seen) >= _MOST_SEEN:
            return False
        self._seen.add(where)
        return True
