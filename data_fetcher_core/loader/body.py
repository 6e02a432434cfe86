"""The body of an answer: read, decoded and counted, piece by piece."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

from aiohttp import ClientResponse
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from data_fetcher_core.errors import FetchError
from data_fetcher_core.loader.decoding import BROKEN, Decoder, UnknownCoding, decoder_for
from data_fetcher_core.loader.failures import FOREIGN, fetch_error
from data_fetcher_core.loader.urls import shown_url
from data_fetcher_core.loader.web import Web

_BREATH = 1024 * 1024
_NOTHING: Iterator[bytes] = iter(())


class Ending:
    """Knows whether a body that ended with its connection was all of it.

    aiohttp takes it for whole however the connection ended: also where it was reset, or closed
    from this side.
    """

    __slots__ = ("_closings", "_line", "_web")

    def __init__(self, web: Web, line: ResponseHandler) -> None:
        self._web = web
        self._closings = web.closings
        self._line = line

    def check(self, url: URL) -> None:
        lost = isinstance(self._line.exception(), OSError)
        if lost or self._web.closings != self._closings:
            raise FetchError(f"{shown_url(url)}: its body broke off")


def _ending(web: Web, response: ClientResponse) -> Ending | None:
    """What to look at when the body ends, if nothing else tells its end."""
    chunked = "chunked" in response.headers.get("Transfer-Encoding", "").lower()
    line = response.connection.protocol if response.connection is not None else None
    return None if chunked or line is None else Ending(web, line)


class Body:
    """Gives the body of ``response`` decoded, and refuses to go beyond ``max_size``.

    The bytes as sent count as well: a stream that decodes to nothing has an end, too.
    """

    def __init__(
        self, web: Web, url: URL, response: ClientResponse, max_size: int = sys.maxsize
    ) -> None:
        self._url = url
        self._content = response.content
        length = response.content_length
        self._ending = _ending(web, response) if length is None else None
        self._max_size = max_size
        self._received = self._decoded = self._breath = 0
        self._pieces = _NOTHING
        if length is not None and length > max_size:
            raise self._too_large()
        try:
            self._decoder = decoder_for(response.headers.get("Content-Encoding"))
        except UnknownCoding as error:
            raise FetchError(f"{shown_url(url)}: has {error}", retryable=False) from None

    async def piece(self) -> bytes:
        """The next piece, not empty before the end."""
        decoder = self._decoder
        if decoder is None:
            return await self._receive()
        while not (piece := self._decode()):
            raw = await self._receive()
            if not raw:
                return self._end(decoder)
            self._pieces = decoder.feed(raw)
        await self._breathe(len(piece))
        return piece

    async def _receive(self) -> bytes:
        content = self._content
        try:
            raw = b"" if content.at_eof() else await content.readany()
        except FOREIGN as error:
            raise fetch_error(self._url, error) from error
        if not raw and self._ending is not None:
            self._ending.check(self._url)
        self._received += len(raw)
        if self._received > self._max_size:
            raise self._too_large()
        return raw

    def _decode(self) -> bytes:
        try:
            piece = next(self._pieces, b"")
        except BROKEN as error:
            raise FetchError(f"{shown_url(self._url)}: its body cannot be decoded") from error
        self._decoded += len(piece)
        if self._decoded > self._max_size:
            raise self._too_large()
        return piece

    def _end(self, decoder: Decoder) -> bytes:
        if not decoder.is_complete():
            raise FetchError(f"{shown_url(self._url)}: its compressed body broke off")
        return b""

    async def _breathe(self, size: int) -> None:
        """Let others run: a little input may decode to very much without any waiting."""
        self._breath += size
        if self._breath >= _BREATH:
            self._breath = 0
            await asyncio.sleep(0)

    def _too_large(self) -> FetchError:
        return FetchError(
            f"{shown_url(self._url)}: is larger than {self._max_size} bytes; "
            "--max-size (max_size=) allows more",
            retryable=False,
        )
