"""Lists of URLs: a file, or what came from stdin, kept so that the run can be resumed."""

from __future__ import annotations

import os
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import click
from anyio import to_thread

from data_fetcher_core.cli.finishing import have_more, locators_of
from data_fetcher_core.cli.folders import data_folder, make_private
from data_fetcher_core.cli.settings import Settings
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.fetcher.turns import checkpoint_name
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.recipes.listed_urls import digest_if_unchanged, digest_of

_CHUNK = 1024 * 1024
_GZIP = b"\x1f\x8b"


class UrlList(NamedTuple):
    """A file of URLs, what it is called, and the SHA-256 of its content."""

    path: Path
    stem: str
    digest: str


def read_list(name: str) -> UrlList:
    """The list that was named; ``-`` is stdin, read to its end. Blocking."""
    if name == "-":
        return _from_stdin()
    path = Path(name).expanduser().absolute()
    digest = digest_of(path)
    if path.stat().st_size == 0:
        raise ConfigurationError(f"{path} is empty: it should hold a URL on each line")
    return UrlList(path, path.name.partition(".")[0], digest)


async def check_list(queue: KVStoreQueue, settings: Settings) -> None:
    """That the list is still there and the same, unless nothing more is read from it."""
    if settings.command != "fetch":
        return
    locators = await locators_of(queue, settings.locators)
    if not have_more(locators, await queue.stats(), settings):
        return
    path = Path(settings.speed["file"])
    await to_thread.run_sync(digest_if_unchanged, path, settings.identity["sha256"])


async def passed_over(queue: KVStoreQueue, settings: Settings) -> int | None:
    """How many lines were no URL, of those that were read; ``None`` if there is no list."""
    if settings.command != "fetch":
        return None
    saved = [await queue.checkpoint(checkpoint_name(name)) for name in settings.locators]
    return sum(_bad_in(one) for one in saved)


def _bad_in(saved: Any) -> int:
    state = saved.get("state") if isinstance(saved, dict) else None
    return int(state.get("bad", 0)) if isinstance(state, dict) else 0


def _from_stdin() -> UrlList:
    if sys.stdin.isatty():
        click.echo("reading URLs from the terminal, one a line; Ctrl-D ends the list", err=True)
    folder = data_folder() / "lists"
    make_private(folder)
    return _spooled(sys.stdin.buffer, folder)


def _spooled(source: BinaryIO, folder: Path) -> UrlList:
    """Under the name of its content, so that the same list is the same file."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix="stdin-", delete=False) as file:
        try:
            digest, start = _copied(source, file)  # type: ignore[arg-type]
            suffix = ".gz" if start.startswith(_GZIP) else ".txt"
            path = folder / f"{digest[:32]}{suffix}"
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    return UrlList(path, "stdin", digest)


def _copied(source: BinaryIO, target: BinaryIO) -> tuple[str, bytes]:
    """The digest of all that came, and how it began."""
    digest, start = sha256(), b""
    while chunk := source.read(_CHUNK):
        start = start or chunk[: len(_GZIP)]
        digest.update(chunk)
        target.write(chunk)
    if not start:
        raise ConfigurationError("nothing came from stdin: it should hold a URL on each line")
    target.flush()
    os.fsync(target.fileno())
    return digest.hexdigest(), start
