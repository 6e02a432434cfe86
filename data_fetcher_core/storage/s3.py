"""Pages and their index in a bucket of an S3-compatible service."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TypeVar, TypeVarTuple, Unpack

from data_fetcher_core.core import Stored
from data_fetcher_core.storage.body import Body
from data_fetcher_core.storage.faults import storage_error
from data_fetcher_core.storage.index_lines import Entries
from data_fetcher_core.storage.index_parts import Part, merge, safe_end, split
from data_fetcher_core.storage.layout import MARKER, page_path, part_path
from data_fetcher_core.storage.run_marker import agrees, index_of_nobody, run_in, write_marker
from data_fetcher_core.storage.s3_address import load_library, open_bucket, parse_address
from data_fetcher_core.storage.s3_bucket import Bucket
from data_fetcher_core.storage.scratch import Scratch
from data_fetcher_core.storage.sink import PageSink
from data_fetcher_core.storage.threads import Threads

T = TypeVar("T")
Args = TypeVarTuple("Args")


class S3Storage:
    """Pages under ``prefix/pages``, named by their SHA-256; their index in ``prefix/index``.

    What is not given comes from the usual ``AWS_*`` environment variables. Bodies too large for
    memory wait in ``spool`` until they are complete, by default a folder among the system's
    temporary files.
    """

    def __init__(
        self,
        bucket_url: str,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        allow_http: bool | None = None,
        retries: int = 5,
        spool: str | PathLike[str] | None = None,
    ) -> None:
        address = parse_address(bucket_url)
        store = open_bucket(
            address,
            endpoint=endpoint,
            region=region,
            access_key=access_key,
            secret_key=secret_key,
            allow_http=allow_http,
            retries=retries,
        )
        self._place = str(address)
        self._bucket = Bucket(store, load_library(), self._place)
        self._scratch = Scratch(_spool() if spool is None else os.fspath(spool), private=True)
        self._threads = Threads()

    def __repr__(self) -> str:
        return f"S3Storage({self._place!r})"

    def receive(self) -> PageSink:
        return PageSink(self._threads, self._scratch, self._upload)

    async def bind(self, birth: str) -> None:
        """Belong to the run ``birth``, and clean up after dead processes of this host."""
        if not await self._agrees(birth):
            if await self._bucket.length_of(part_path(1)) is not None:
                raise index_of_nobody(self._place, birth)
            if not await self._bucket.write_if(MARKER, write_marker(birth), "create"):
                await self._agrees(birth)
        await self._run(self._scratch.sweep)

    async def is_bound(self, birth: str) -> bool:
        """Whether it belongs to the run ``birth`` already; nothing is made."""
        marker = await self._bucket.read(MARKER)
        return marker is not None and run_in(marker.data) == birth

    async def append_index(self, entries: Entries) -> int:
        """Write the parts that are complete; the end of the last of them."""
        parts = await self._threads.run(split, entries)
        await self._write_complete(parts)
        return safe_end(parts)

    async def finish_index(self, entries: Entries) -> int:
        """Write the unfinished part as well. It is not safe yet: give its entries again."""
        parts = await self._threads.run(split, entries)
        await self._write_complete(parts)
        for part in parts:
            if not part.is_complete:
                await self._extend(part)
        return safe_end(parts)

    async def close(self) -> None:
        self._threads.close()

    async def _agrees(self, birth: str) -> bool:
        marker = await self._bucket.read(MARKER)
        return agrees(None if marker is None else marker.data, birth, self._place)

    async def _upload(self, body: Body) -> Stored:
        digest = body.digest
        stored = Stored(digest, body.length, page_path(digest))
        if await self._bucket.length_of(stored.path) != stored.length:
            await self._bucket.write(stored.path, await self._source(body))
        if body.path is not None:
            await self._run(body.drop)
        return stored

    async def _source(self, body: Body) -> bytes | Path:
        if body.path is None:
            return body.content()
        return Path(await self._run(body.settle, self._scratch))

    async def _write_complete(self, parts: list[Part]) -> None:
        for part in parts:
            if part.is_complete:
                await self._bucket.write(part_path(part.number), part.content())

    async def _extend(self, part: Part) -> None:
        """Add the lines that are not there; another process may be doing the same."""
        path = part_path(part.number)
        written = False
        while not written:
            there = await self._bucket.read(path)
            if there is None:
                written = await self._bucket.write_if(path, part.content(), "create")
            else:
                content = merge(part, there.data).content()
                written = content == there.data or await self._bucket.write_if(
                    path, content, there.version
                )

    async def _run(self, work: Callable[[Unpack[Args]], T], *args: *Args) -> T:
        try:
            return await self._threads.run(work, *args)
        except OSError as error:
            raise storage_error(error, self._scratch.directory) from error


def _spool() -> str:
    return f"{tempfile.gettempdir()}/data-fetcher-{os.getuid()}"
