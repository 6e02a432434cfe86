"""The composition root: the one place that knows every concrete class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from data_fetcher_core.core import Storage
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.kv_store import KeyValueStore, create_kv_store
from data_fetcher_core.showing import shown
from data_fetcher_core.storage import FileStorage, S3Storage


@dataclass(frozen=True, slots=True)
class FetcherConfig:
    """What a run works with; both are closed with it."""

    kv_store: KeyValueStore
    storage: Storage | None = None

    async def close(self) -> None:
        try:
            if self.storage is not None:
                await self.storage.close()
        finally:
            await self.kv_store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


async def create_fetcher_config(
    kv_store_type: str = "memory",
    storage_type: Literal["file", "s3"] | None = None,
    *,
    file_path: str | Path | None = None,
    fsync: bool = False,
    s3_url: str | None = None,
    s3_options: dict[str, Any] | None = None,
    **store_options: Any,
) -> FetcherConfig:
    """A store by its type or URL, and a storage by its type.

    ``file_path`` is the folder of a ``"file"`` storage, ``s3_url`` the ``s3://bucket/prefix`` of
    an ``"s3"`` one. What else is given goes to :func:`~.kv_store.create_kv_store`.
    """
    storage = _storage(storage_type, file_path, fsync, s3_url, s3_options or {})
    return FetcherConfig(create_kv_store(kv_store_type, **store_options), storage)


def _storage(
    storage_type: str | None,
    file_path: str | Path | None,
    fsync: bool,
    s3_url: str | None,
    s3_options: dict[str, Any],
) -> Storage | None:
    if storage_type is None:
        return None
    if storage_type == "file":
        return FileStorage(_needed("file_path", file_path), fsync=fsync)
    if storage_type == "s3":
        return S3Storage(str(_needed("s3_url", s3_url)), **s3_options)
    raise ConfigurationError(f"storage_type must be 'file' or 's3', not {shown(storage_type)}")


def _needed(name: str, value: str | Path | None) -> str | Path:
    if not value:
        raise ConfigurationError(f"{name} is required for this storage_type")
    return value
