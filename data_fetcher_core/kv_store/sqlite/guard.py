"""Whether the files at the path are still those that were opened."""

from __future__ import annotations

from pathlib import Path

from data_fetcher_core.kv_store.sqlite.layout import beside


class Guard:
    """Remembers the database and its log as they are now.

    What is written to a file that has lost its name is lost when its process ends.
    """

    def __init__(self, path: Path) -> None:
        self._files = {file: _identity(file) for file in (path, beside(path, "-wal"))}

    def missing(self) -> Path | None:
        """The file that was removed or replaced since, if any."""
        for file, opened in self._files.items():
            if _identity(file) != opened:
                return file
        return None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
