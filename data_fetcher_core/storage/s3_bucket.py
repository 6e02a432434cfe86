"""The few things asked of a bucket; its errors leave as ours."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from data_fetcher_core.storage.s3_faults import bucket_error, is_denied, is_missing, is_taken

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode
    from obstore.store import S3Store

# Of one large body: more would hold too much of many large bodies in memory at once.
_PARTS_AT_ONCE = 2


class Content(NamedTuple):
    """What an object holds, and how to write it only if it still does."""

    data: bytes
    version: PutMode


class Bucket:
    """A place in a bucket; paths are relative to it."""

    def __init__(self, store: S3Store, library: ModuleType, place: str) -> None:
        self._store = store
        self._place = place
        self._foreign: tuple[type[Exception], ...] = (
            library.exceptions.BaseError,
            OSError,
            ValueError,
        )

    async def length_of(self, path: str) -> int | None:
        """How long the object is, ``None`` if there is none, or none that we may ask about.

        A service that does not let us list tells what is missing as forbidden.
        """
        try:
            return (await self._store.head_async(path))["size"]
        except self._foreign as error:
            if is_missing(error) or is_denied(error):
                return None
            raise bucket_error(error, self._place) from None

    async def read(self, path: str) -> Content | None:
        """What it holds, ``None`` if there is none."""
        try:
            answer = await self._store.get_async(path)
            data = bytes(await answer.bytes_async())
        except self._foreign as error:
            if is_missing(error):
                return None
            raise bucket_error(error, self._place) from None
        return Content(data, _still(answer.meta))

    async def write(self, path: str, data: bytes | Path) -> None:
        try:
            await self._store.put_async(path, data, max_concurrency=_PARTS_AT_ONCE)
        except self._foreign as error:
            raise bucket_error(error, self._place) from None

    async def write_if(self, path: str, data: bytes, mode: PutMode) -> bool:
        """Write if it is not there (``create``), or still that version; whether it was."""
        try:
            await self._store.put_async(path, data, mode=mode)
        except self._foreign as error:
            if is_taken(error):
                return False
            raise bucket_error(error, self._place) from None
        return True


def _still(meta: ObjectMeta) -> PutMode:
    """A service that tells no versions cannot be asked to keep one."""
    tag = meta["e_tag"]
    return "overwrite" if tag is None else {"e_tag": tag}
