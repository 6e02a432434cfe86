"""The folder or bucket of a run's pages: there, writable, and this run's own."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from data_fetcher_core.errors import ConfigurationError, DataFetcherError
from data_fetcher_core.fetcher.fetcher import BIRTH
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.storage import FileStorage
from data_fetcher_core.storage.layout import INDEX, MARKER, PAGES, SCRATCH

_OURS = (PAGES, SCRATCH)
_PATIENCE = 10.0
_GLANCE = 0.2


def absolute_out(out: str | None) -> str | None:
    """As it is kept: the same folder from wherever the run is resumed."""
    if out is None or "://" in out:
        return out
    if not out or "\0" in out:
        raise ConfigurationError("--out is empty: give a folder, or s3://bucket/prefix")
    return os.path.abspath(os.path.expanduser(out))  # noqa: PTH100, PTH111 - links stay as typed


def prepare_folder(folder: Path) -> bool:
    """Make the folder of a new run, unless it is there; whether it was made. Blocking.

    One that belongs to another run is refused.
    """
    if (folder / MARKER).exists() or (folder / INDEX).exists():
        raise ConfigurationError(
            f"{folder} holds the pages of another run: choose another --out, or remove it"
        )
    is_there = folder.is_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"{folder} cannot be made ({error.strerror}): choose another --out"
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigurationError(f"{folder} may not be written to: choose another --out")
    return not is_there


def remove_if_empty(folder: Path) -> None:
    """Blocking."""
    with suppress(OSError):
        folder.rmdir()


async def check_output(
    queue: KVStoreQueue, storage: Any, out: str, *, has_pages: bool, is_joined: bool
) -> None:
    """Refuse to go on where pages of the run would be missing, or lie in two places."""
    if is_joined:
        await _wait_until_bound(queue, storage, out)
    elif has_pages and not await _is_bound(queue, storage):
        raise ConfigurationError(
            f"the pages of this run were in {out}, and are not there any more: put them back to "
            "go on; or forget the run and begin anew"
        )


async def _wait_until_bound(queue: KVStoreQueue, storage: Any, out: str) -> None:
    with anyio.move_on_after(_PATIENCE):
        while not await _is_bound(queue, storage):  # noqa: ASYNC110 - in another process
            await anyio.sleep(_GLANCE)
        return
    raise ConfigurationError(
        f"the pages of this run are in {out}, and that is not here: to work on a run from several "
        "machines, begin it with --out s3://… or in a folder that all of them share"
    )


async def _is_bound(queue: KVStoreQueue, storage: Any) -> bool:
    birth = await queue.checkpoint(BIRTH)
    return birth is not None and await storage.is_bound(birth)


async def remove_pages(out: str, birth: str | None) -> None:
    """Delete the pages of a run, and nothing else that may lie beside them."""
    if "://" in out:
        raise ConfigurationError(f"{out} is left as it is: empty it with the tools of its service")
    storage = FileStorage(out)
    try:
        if birth is None or not await storage.is_bound(birth):
            raise ConfigurationError(f"{out} does not belong to this run: it is left as it is")
    finally:
        await storage.close()
    await anyio.to_thread.run_sync(_remove, Path(out))


def _remove(folder: Path) -> None:
    """The marker goes last: whatever happens, it can be tried again."""
    try:
        for name in _OURS:
            if (folder / name).exists():
                shutil.rmtree(folder / name)
        (folder / INDEX).unlink(missing_ok=True)
        (folder / MARKER).unlink()
        if not any(folder.iterdir()):
            folder.rmdir()
    except OSError as error:
        raise DataFetcherError(f"{error.filename} cannot be removed: {error.strerror}") from None
