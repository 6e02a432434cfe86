"""Reading a file of URLs, one a line, from any place in it. Blocking: for a thread."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from yarl import URL

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.recipes.web_urls import LONGEST_URL, web_url

MOST_BAD_KEPT = 100
_LONGEST_LINE = 4 * LONGEST_URL
_MARK = b"\xef\xbb\xbf"


class Place(NamedTuple):
    """How far a file was read: bytes (of its text, where it is compressed) and lines."""

    offset: int = 0
    line: int = 0


class BadLine(NamedTuple):
    """A line that is no URL, and why. What it says is not kept: it may hold a password."""

    line: int
    reason: str


@dataclass(slots=True)
class Batch:
    """What was read, and the place after it."""

    place: Place
    urls: list[URL] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)
    bad_count: int = 0


def digest_of(path: Path) -> str:
    with _reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_if_unchanged(path: Path, known: str) -> str:
    """The digest, which must be the ``known`` one, unless nothing is known yet."""
    digest = digest_of(path)
    if known not in {"", digest}:
        raise ConfigurationError(
            f"{path} was changed since the run was begun with it: put the old file back to go on, "
            "or begin a new run with the new one"
        )
    return digest


def open_list(path: Path) -> BinaryIO:
    with _reading(path):
        return cast("BinaryIO", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error


def read_urls(file: BinaryIO, place: Place, most: int) -> Batch:
    """The next URLs; none only at the end of the file."""
    batch = Batch(place)
    try:
        file.seek(place.offset)
        for raw, batch.place in _lines(file, place):
            _take(raw.strip(), batch)
            if len(batch.urls) == most:
                break
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(
            f"{file.name} cannot be read after line {batch.place.line}: {error}"
        ) from error
    return batch


def _lines(file: BinaryIO, place: Place) -> Iterator[tuple[bytes, Place]]:
    offset, line = place
    while raw := file.readline(_LONGEST_LINE):
        line += 1
        offset += len(raw) + _skip_rest(file, raw)
        # Files that were put together have a mark in the middle, too.
        yield raw.removeprefix(_MARK), Place(offset, line)


def _skip_rest(file: BinaryIO, raw: bytes) -> int:
    """How many bytes more the line has than were read of it; they are not kept."""
    skipped = 0
    while len(raw) == _LONGEST_LINE and not raw.endswith(b"\n"):
        raw = file.readline(_LONGEST_LINE)
        skipped += len(raw)
    return skipped


def _take(text: bytes, batch: Batch) -> None:
    if not text or text.startswith(b"#"):
        return
    try:
        batch.urls.append(web_url(text.decode()))
    except UnicodeDecodeError:
        _refuse("not UTF-8", batch)
    except ValueError as error:
        remedy = "" if b"://" in text else ": begin it with http:// or https://"
        _refuse(f"{error}{remedy}", batch)


def _refuse(reason: str, batch: Batch) -> None:
    batch.bad_count += 1
    if len(batch.bad) < MOST_BAD_KEPT:
        batch.bad.append(BadLine(batch.place.line, reason))
