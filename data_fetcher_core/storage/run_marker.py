"""Which run a storage belongs to: a small file, written once."""

from __future__ import annotations

import os
from typing import Any

import orjson

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.storage.disk import length_of, read, rename, sync
from data_fetcher_core.storage.index_file import locked
from data_fetcher_core.storage.layout import INDEX, LAYOUT, MARKER
from data_fetcher_core.storage.scratch import Scratch


def write_marker(birth: str) -> bytes:
    return orjson.dumps({"run": birth, "layout": LAYOUT}, option=orjson.OPT_APPEND_NEWLINE)


def run_in(marker: bytes) -> str | None:
    """The run that a marker names, ``None`` if it is not one of this layout."""
    try:
        read: Any = orjson.loads(marker)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(read, dict) or read.get("layout") != LAYOUT:
        return None
    run = read.get("run")
    return run if isinstance(run, str) else None


def agrees(marker: bytes | None, birth: str, place: str) -> bool:
    """Whether there is a marker for ``birth``; raises if it is for anything else."""
    if marker is None:
        return False
    run = run_in(marker)
    if run is None:
        raise ConfigurationError(
            f"{place}/{MARKER} was not written by this version: choose another --out, "
            f"or remove {place}"
        )
    if run != birth:
        raise ConfigurationError(
            f"{place} belongs to the run {run!r}, and this is the run {birth!r}: "
            f"choose another --out, or remove {place}"
        )
    return True


def index_of_nobody(place: str, birth: str) -> ConfigurationError:
    return ConfigurationError(
        f"{place} has an index but no {MARKER}: it belongs to an unknown run, and this is the run "
        f"{birth!r}: choose another --out, or remove {place}"
    )


def claim(directory: str, birth: str, scratch: Scratch) -> None:
    """Make the directory belong to ``birth``; of two who try at once, one wins. Blocking."""
    path = f"{directory}/{MARKER}"
    if agrees(read(path), birth, directory):
        return
    with locked(f"{directory}/{INDEX}") as index:
        if agrees(read(path), birth, directory):
            return
        if os.fstat(index).st_size:
            raise index_of_nobody(directory, birth)
        _put(path, write_marker(birth), scratch)
    sync(directory)


def is_claimed(directory: str, birth: str) -> bool:
    marker = read(f"{directory}/{MARKER}")
    return marker is not None and run_in(marker) == birth


def is_there(directory: str) -> bool:
    return length_of(f"{directory}/{MARKER}") is not None


def _put(path: str, marker: bytes, scratch: Scratch) -> None:
    temporary = scratch.create(marker)
    sync(temporary)
    rename(temporary, path)
