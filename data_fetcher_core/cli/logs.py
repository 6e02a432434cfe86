"""What is logged before there is a view, and while there is none."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class HeldLogs(logging.Handler):
    """Keeps warnings until somebody can show them: a line of text would spoil a log of JSON."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._records: list[logging.LogRecord] = []
        logging.getLogger().addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)

    # Not "release": by that name every handler lets go of its lock.
    def hand_over(self) -> None:
        """Give what was kept to whoever listens now."""
        logging.getLogger().removeHandler(self)
        records, self._records = self._records, []
        for record in records:
            logging.getLogger(record.name).handle(record)


@contextmanager
def warnings_unsaid() -> Iterator[None]:
    """For a command that only looks: warnings about the store are the business of `doctor`."""
    logger = logging.getLogger("data_fetcher_core")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
