"""A storage by its path or its URL."""

from __future__ import annotations

import os
import re
from os import PathLike
from typing import Any

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.showing import shown
from data_fetcher_core.storage.files import FileStorage
from data_fetcher_core.storage.s3 import S3Storage


def create_storage(
    place: str | PathLike[str] | None,
    *,
    fsync: bool = False,
    endpoint: str | None = None,
    region: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    allow_http: bool | None = None,
) -> FileStorage | S3Storage | None:
    """A directory, or a bucket by ``s3://bucket/prefix``; ``None`` stores nothing.

    ``fsync`` is for a directory: what a bucket has taken is safe. The others are for a bucket.
    """
    if place is None:
        return None
    if not isinstance(place, str | PathLike):
        raise ConfigurationError(f"a storage is a directory or a URL, not {shown(place)}")
    path = os.fspath(place)
    scheme = _scheme(path)
    bucket = {
        "endpoint": endpoint,
        "region": region,
        "access_key": access_key,
        "secret_key": secret_key,
        "allow_http": allow_http,
    }
    if scheme == "s3":
        settings: Any = bucket
        return S3Storage(path, **settings)
    _check(scheme, bucket)
    return FileStorage(path, fsync=fsync)


def _scheme(path: str) -> str:
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", path)
    return found[1].lower() if found else ""


def _check(scheme: str, bucket: dict[str, Any]) -> None:
    if scheme:
        raise ConfigurationError(
            f"{scheme!r} is no scheme of a storage's URL: use a directory, or s3://bucket/prefix"
        )
    given = [name for name, value in bucket.items() if value is not None]
    if given:
        raise ConfigurationError(
            f"{', '.join(given)} is for a bucket, and this is a directory: use s3://bucket/prefix, "
            "or leave it out"
        )
