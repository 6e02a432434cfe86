"""Pages and their index in a directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import TypeVar, TypeVarTuple, Unpack

from data_fetcher_core.core import Stored
from data_fetcher_core.errors import ConfigurationError, StorageError
from data_fetcher_core.showing import shown
from data_fetcher_core.storage import index_file, run_marker
from data_fetcher_core.storage.body import Body
from data_fetcher_core.storage.disk import folder_of, make_directory, sync
from data_fetcher_core.storage.faults import storage_error
from data_fetcher_core.storage.group_commit import GroupCommit
from data_fetcher_core.storage.index_lines import Entries
from data_fetcher_core.storage.layout import INDEX, PAGES, SCRATCH
from data_fetcher_core.storage.pages import PageFiles
from data_fetcher_core.storage.scratch import Scratch
from data_fetcher_core.storage.sink import PageSink
from data_fetcher_core.storage.threads import Threads

T = TypeVar("T")
Args = TypeVarTuple("Args")
# Bounds how long the first of a batch waits for the last.
_BATCH = 64


class FileStorage:
    """Pages under ``DIR/pages``, named by their SHA-256; their index in ``DIR/index.jsonl``.

    What is committed survives the death of any process. With ``fsync`` it survives a power cut
    as well; the index always does.
    """

    def __init__(self, directory: str | PathLike[str], *, fsync: bool = False) -> None:
        self._directory = _checked(directory)
        self._scratch = Scratch(f"{self._directory}/{SCRATCH}")
        self._pages = PageFiles(self._directory, self._scratch, fsync=fsync)
        self._threads = Threads()
        self._commits: GroupCommit[Body, Stored] = GroupCommit(
            self._threads, self._place, most=_BATCH
        )
        self._bound = False

    def __repr__(self) -> str:
        return f"FileStorage({self._directory!r})"

    def receive(self) -> PageSink:
        return PageSink(self._threads, self._scratch, self._commits.submit)

    async def bind(self, birth: str) -> None:
        """Belong to the run ``birth``, and clean up after its dead processes."""
        await self._run(self._bind, birth)
        self._bound = True

    async def is_bound(self, birth: str) -> bool:
        """Whether it belongs to the run ``birth`` already; nothing is made."""
        return await self._run(run_marker.is_claimed, self._directory, birth)

    async def append_index(self, entries: Entries) -> int:
        return await self._run(self._append_index, entries)

    async def finish_index(self, entries: Entries) -> int:
        return await self._run(self._append_index, entries)

    async def close(self) -> None:
        await self._commits.finish()
        self._threads.close()

    def _bind(self, birth: str) -> None:
        _make(self._directory)
        run_marker.claim(self._directory, birth, self._scratch)
        make_directory(f"{self._directory}/{PAGES}")
        self._scratch.sweep()

    def _append_index(self, entries: Entries) -> int:
        self._check_still_there()
        return index_file.append(f"{self._directory}/{INDEX}", entries)

    def _place(self, bodies: Sequence[Body]) -> list[Stored | Exception]:
        try:
            self._check_still_there()
        except OSError as error:
            raise storage_error(error, self._directory) from error
        return self._pages.place(bodies)

    def _check_still_there(self) -> None:
        """A disk that was unmounted leaves an empty directory, where nothing must be written."""
        if self._bound and not run_marker.is_there(self._directory):
            raise StorageError(
                f"{self._directory} is no longer the directory of this run (its run.json is "
                "gone): mount or restore it, and resume"
            )

    async def _run(self, work: Callable[[Unpack[Args]], T], *args: *Args) -> T:
        try:
            return await self._threads.run(work, *args)
        except OSError as error:
            raise storage_error(error, self._directory) from error


def _checked(directory: str | PathLike[str]) -> str:
    path = os.fspath(directory) if isinstance(directory, str | PathLike) else directory
    if not isinstance(path, str) or not path or "\0" in path:
        raise ConfigurationError(f"{shown(path)} is no directory: give a path such as 'out'")
    return str(Path(path).absolute())


def _make(directory: str) -> None:
    if not Path(directory).is_dir():
        make_directory(directory)
        # A parent that cannot be read cannot be synced either; it is not ours.
        with suppress(PermissionError):
            sync(folder_of(directory))
