"""This host: versions, folders, disk, clock."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import time
from importlib import metadata
from pathlib import Path

from data_fetcher_core.cli.doctor.findings import Finding, Health
from data_fetcher_core.cli.folders import data_folder
from data_fetcher_core.cli.places import Place
from data_fetcher_core.cli.view.figures import size

_LIBRARIES = (
    "aiohttp", "anyio", "click", "orjson", "platformdirs", "protego", "redis", "rich",
    "selectolax", "yarl",
)  # fmt: skip
_LITTLE_DISK = 1024**3
_TOO_LITTLE_DISK = 64 * 1024**2
# Nobody ran this before it was written.
_EARLIEST = 1_750_000_000.0


def check_host(place: Place) -> list[Finding]:
    """Blocking, but short."""
    folder = data_folder()
    return [
        *_versions(),
        Finding("data folder", Health.NOTE, str(folder)),
        Finding("store", Health.NOTE, f"{place}{_chosen_by(place)}"),
        _clock(),
        _disk("disk of the data folder", folder),
        *([] if place.file is None else [_disk("disk of the store", place.file.parent)]),
    ]


def _versions() -> list[Finding]:
    versions = {
        "python": platform.python_version(),
        "data-fetcher-core": _version("data-fetcher-core"),
        "sqlite": sqlite3.sqlite_version,
        **{name: _version(name) for name in _LIBRARIES},
    }
    found = [
        Finding(name, Health.GOOD if version else Health.WRONG, version or "not installed")
        for name, version in versions.items()
    ]
    obstore = _version("obstore")
    hint = "not installed; --out s3://… needs it: pip install 'data-fetcher-core[s3]'"
    return [*found, Finding("obstore", Health.GOOD if obstore else Health.NOTE, obstore or hint)]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _chosen_by(place: Place) -> str:
    if place.is_typed:
        return " (by --store)"
    return " (by DATA_FETCHER_STORE)" if os.environ.get("DATA_FETCHER_STORE") else " (the default)"


def _clock() -> Finding:
    now = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime())
    if time.time() < _EARLIEST:
        return Finding("clock", Health.WRONG, f"{now} is long ago: set the clock of this host")
    return Finding("clock", Health.GOOD, now)


def _disk(subject: str, folder: Path) -> Finding:
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(nearest).free
    health = (
        Health.WRONG
        if free < _TOO_LITTLE_DISK
        else Health.WARNING
        if free < _LITTLE_DISK
        else Health.GOOD
    )
    return Finding(subject, health, f"{size(free)} free at {nearest}")
