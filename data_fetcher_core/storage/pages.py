"""Bodies go under their final names, many at a time.

A final name is given by a rename and by nothing else, so a file under one is whole, whatever
was killed. Blocking: for threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from data_fetcher_core.core import Stored
from data_fetcher_core.errors import StorageError
from data_fetcher_core.storage.body import Body
from data_fetcher_core.storage.disk import folder_of, length_of, make_directory, rename, sync
from data_fetcher_core.storage.faults import storage_error
from data_fetcher_core.storage.layout import PAGES, page_path
from data_fetcher_core.storage.scratch import Scratch


class PageFiles:
    """The pages of one directory."""

    def __init__(self, directory: str, scratch: Scratch, *, fsync: bool) -> None:
        self._directory = directory
        self._scratch = scratch
        self._fsync = fsync

    def place(self, bodies: Sequence[Body]) -> list[Stored | Exception]:
        """Where each of them is now, or why it is not."""
        pages = [_Page(body, self._directory) for body in bodies]
        self._each(pages, self._write_down)
        if self._fsync:
            self._each(pages, _sync_file)
        self._each(pages, self._rename)
        if self._fsync:
            self._sync_directories(pages)
        return [page.failure or page.stored for page in pages]

    def _each(self, pages: Sequence[_Page], step: Callable[[_Page], None]) -> None:
        for page in pages:
            if page.failure is None:
                try:
                    step(page)
                except OSError as error:
                    page.failure = storage_error(error, self._directory)

    def _write_down(self, page: _Page) -> None:
        if length_of(page.path) == page.stored.length:
            page.body.drop()
            page.written = page.path
        else:
            page.written = page.body.settle(self._scratch)

    def _rename(self, page: _Page) -> None:
        if page.written == page.path:
            return
        try:
            rename(page.written, page.path)
        except FileNotFoundError:
            self._make_folder(folder_of(page.path))
            rename(page.written, page.path)

    def _make_folder(self, folder: str) -> None:
        make_directory(folder)
        if self._fsync:
            sync(f"{self._directory}/{PAGES}")
            sync(self._directory)

    def _sync_directories(self, pages: Sequence[_Page]) -> None:
        """Each directory once, for all the pages in it."""
        by_folder: dict[str, list[_Page]] = {}
        for page in pages:
            if page.failure is None:
                by_folder.setdefault(folder_of(page.path), []).append(page)
        for folder, its_pages in by_folder.items():
            try:
                sync(folder)
            except OSError as error:
                for page in its_pages:
                    page.failure = storage_error(error, self._directory)


class _Page:
    """A body on its way to ``path``; ``written`` is the file that holds it."""

    __slots__ = ("body", "failure", "path", "stored", "written")

    def __init__(self, body: Body, directory: str) -> None:
        digest = body.digest
        self.body = body
        self.stored = Stored(digest, body.length, page_path(digest))
        self.path = f"{directory}/{self.stored.path}"
        self.written = ""
        self.failure: StorageError | None = None


def _sync_file(page: _Page) -> None:
    sync(page.written)
