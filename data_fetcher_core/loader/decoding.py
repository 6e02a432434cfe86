"""Content codings, undone step by step: no input, however small, gives much output at once.

A decoder is fed what arrived and yields it decoded in pieces of about ``STEP`` bytes; who takes
them may stop at any time, and then no more is decoded.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Protocol

brotli: Any = None
with suppress(ImportError):
    brotli = importlib.import_module("brotli")

STEP = 65_536
# A decoder of concatenated members copies what is left of its input at every boundary.
_SLICE = 16_384
_MOST_CODINGS = 3
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS

# Older versions cannot bound what they give out at once.
HAS_BROTLI = hasattr(getattr(brotli, "Decompressor", None), "can_accept_more_data")
ACCEPT_ENCODING = "gzip, deflate, br" if HAS_BROTLI else "gzip, deflate"
BROKEN: tuple[type[Exception], ...] = (zlib.error, brotli.error) if HAS_BROTLI else (zlib.error,)
"""What a decoder raises when it is fed what it cannot decode."""


class UnknownCoding(ValueError):
    """The body is in a coding that was not asked for."""


class Decoder(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` is decoded, piece by piece."""

    def is_complete(self) -> bool:
        """Whether the stream has come to its end, or never began."""


def decoder_for(content_encoding: str | None) -> Decoder | None:
    """What undoes the codings of a body; ``None`` where there is nothing to undo."""
    if content_encoding is None:
        return None
    names = [name.strip().lower() for name in content_encoding.split(",")]
    codings = [name for name in names if name not in {"", "identity", "none"}]
    if len(codings) > _MOST_CODINGS:
        raise UnknownCoding(f"{len(codings)} content codings on top of each other")
    decoder: Decoder | None = None
    for name in reversed(codings):
        if (undone := _decoder(name)) is not None:
            decoder = undone if decoder is None else _Chain(decoder, undone)
    return decoder


def _decoder(name: str) -> Decoder | None:
    if name in {"gzip", "x-gzip"}:
        return _Gzip()
    if name == "deflate":
        return _Deflate()
    if name == "br" and HAS_BROTLI:
        return _Brotli()
    if name in {"br", "zstd", "compress", "x-compress", "dcb", "dcz"}:
        raise UnknownCoding(f"the content coding {name!r}, which was not asked for")
    # A word that names no coding ("utf-8" has been seen) codes nothing.
    return None


class _Chain:
    """One coding inside another."""

    def __init__(self, outer: Decoder, inner: Decoder) -> None:
        self._outer = outer
        self._inner = inner

    def feed(self, data: bytes) -> Iterator[bytes]:
        for piece in self._outer.feed(data):
            yield from self._inner.feed(piece)

    def is_complete(self) -> bool:
        return self._outer.is_complete() and self._inner.is_complete()


class _Inflater:
    """One stream of zlib's, in whichever wrapping."""

    def __init__(self, window: int) -> None:
        self._unit = zlib.decompressobj(window)
        self._window = window
        self._begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._begun = True
        for start in range(0, len(data), _SLICE):
            yield from self._inflate(data[start : start + _SLICE])

    def is_complete(self) -> bool:
        return self._unit.eof or not self._begun

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        full = False
        while data or full:
            if self._unit.eof and not self._goes_on(data):
                return
            piece = self._unit.decompress(data, STEP)
            full = len(piece) == STEP
            data = self._unit.unused_data if self._unit.eof else self._unit.unconsumed_tail
            if piece:
                yield piece

    def _goes_on(self, data: bytes) -> bool:
        """Whether another stream follows the one that ended; anything else there is padding."""
        return False


class _Gzip(_Inflater):
    def __init__(self) -> None:
        super().__init__(_GZIP)

    def _goes_on(self, data: bytes) -> bool:
        if not data.startswith(b"\x1f"):
            return False
        self._unit = zlib.decompressobj(self._window)
        return True


class _Deflate:
    """Some servers send what the standard means, in zlib's wrapping, and some send it bare."""

    def __init__(self) -> None:
        self._head = b""
        self._inflater: _Inflater | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._inflater is None:
            data = self._head = self._head + data
            if len(data) < 2:
                return
            wrapped = data[0] & 0x0F == 8 and int.from_bytes(data[:2]) % 31 == 0
            self._inflater = _Inflater(_ZLIB if wrapped else _RAW)
            self._head = b""
        yield from self._inflater.feed(data)

    def is_complete(self) -> bool:
        return not self._head and (self._inflater is None or self._inflater.is_complete())


class _Brotli:
    def __init__(self) -> None:
        self._unit: Any = brotli.Decompressor()
        self._begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._begun = True
        while not self._unit.is_finished():
            piece = self._unit.process(data, output_buffer_limit=STEP)
            data = b""
            if not piece:
                return
            yield piece

    def is_complete(self) -> bool:
        return self._unit.is_finished() or not self._begun
