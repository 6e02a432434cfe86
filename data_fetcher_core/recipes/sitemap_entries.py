"""What a sitemap lists: by the protocol of sitemaps.org, as XML or plain text, maybe gzipped.

Nothing outside the document is read, no entity may be declared, and what a compressed one holds
is bounded. Reading goes only as far as it is asked to.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple
from xml.parsers import expat

from data_fetcher_core.recipes.web_urls import LONGEST_URL

# The protocol allows 50 MiB.
LARGEST = 64 * 1024 * 1024
_CHUNK = 64 * 1024
_GZIP = b"\x1f\x8b"
_MARK = b"\xef\xbb\xbf"
_ROOTS = frozenset({"urlset", "sitemapindex"})
_LISTED_IN = frozenset({"url", "sitemap"})


class SitemapError(ValueError):
    """It is no sitemap, or it breaks off."""


class Listed(NamedTuple):
    """A text that should be a URL, and whether it is that of another sitemap."""

    text: str
    is_sitemap: bool


class Reading(NamedTuple):
    """The entries of a sitemap, whether there would be more, and what stopped the reading."""

    entries: list[Listed]
    is_cut: bool = False
    failure: str | None = None


def likely_size(body: bytes) -> int:
    """How many bytes there will be to read: URLs of one site are packed to a fraction."""
    return len(body) * (20 if body.startswith(_GZIP) else 1)


def reading_of(body: bytes, most: int) -> Reading:
    """At most so many entries."""
    entries: list[Listed] = []
    try:
        for entry in entries_of(body):
            if len(entries) == most:
                return Reading(entries, is_cut=True)
            entries.append(entry)
    except SitemapError as error:
        return Reading(entries, failure=str(error))
    return Reading(entries)


def entries_of(body: bytes) -> Iterator[Listed]:
    """Each entry in order; raises :class:`SitemapError` where the rest cannot be read."""
    chunks = _chunks(body)
    first = next(chunks, b"").removeprefix(_MARK)
    if not first.strip():
        raise SitemapError("it is empty")
    if first.lstrip()[:1] == b"<" or first[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return _from_xml(first, chunks)
    return _from_text(first, chunks)


def _chunks(body: bytes) -> Iterator[bytes]:
    if body.startswith(_GZIP):
        return _decompressed(body)
    return (body[start : start + _CHUNK] for start in range(0, len(body), _CHUNK))


def _decompressed(body: bytes) -> Iterator[bytes]:
    total = 0
    while body.startswith(_GZIP):  # several may follow each other
        unpack = zlib.decompressobj(wbits=31)
        while not unpack.eof:
            chunk = _unpacked(unpack, body)
            body = unpack.unconsumed_tail or unpack.unused_data
            total += len(chunk)
            if total > LARGEST:
                raise SitemapError(f"it unpacks to more than {LARGEST} bytes")
            if not chunk and not body and not unpack.eof:
                raise SitemapError("its compressed data break off")
            if chunk:
                yield chunk


def _unpacked(unpack: zlib._Decompress, body: bytes) -> bytes:
    try:
        return unpack.decompress(body, _CHUNK)
    except zlib.error as error:
        raise SitemapError(f"it cannot be unpacked: {error}") from None


def _from_text(first: bytes, chunks: Iterator[bytes]) -> Iterator[Listed]:
    rest = first
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from map(_line, filter(bytes.strip, lines))
        rest = rest[: 2 * LONGEST_URL]
    yield from map(_line, filter(bytes.strip, rest.split(b"\n")))


def _line(line: bytes) -> Listed:
    return Listed(line.strip().decode(errors="replace"), is_sitemap=False)


def _from_xml(first: bytes, chunks: Iterator[bytes]) -> Iterator[Listed]:
    reader = _XmlReader()
    for chunk in chain([first], chunks, [b""]):
        failure = reader.feed(chunk)
        yield from reader.take()
        if failure is not None:
            raise failure


class _XmlReader:
    """Collects the text of each ``loc`` directly within a ``url`` or a ``sitemap``.

    Prefixes are not looked up: they are often undeclared, and an ``image:loc`` stands elsewhere.
    """

    def __init__(self) -> None:
        self._found: list[Listed] = []
        self._open: list[str] = []
        self._text: list[str] | None = None
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = _refuse_entities

    def feed(self, chunk: bytes) -> SitemapError | None:
        """Read on; an empty chunk is the end. Answers what stops it."""
        try:
            self._parser.Parse(chunk, not chunk)
        except SitemapError as error:
            return error
        except (expat.ExpatError, LookupError, ValueError) as error:
            return SitemapError(f"it is not well-formed: {error}")
        return None

    def take(self) -> list[Listed]:
        found, self._found = self._found, []
        return found

    def _start(self, name: str, _: dict[str, str]) -> None:
        local = name.rpartition(":")[2]
        if not self._open and local not in _ROOTS:
            raise SitemapError(f"it is no sitemap, but begins with <{name[:80]}>")
        if local == "loc" and self._open[-1:] and self._open[-1] in _LISTED_IN:
            self._text = []
        self._open.append(local)

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _end(self, _: str) -> None:
        self._open.pop()
        if self._text is not None and self._open[-1] in _LISTED_IN:
            self._found.append(Listed("".join(self._text), self._open[-1] == "sitemap"))
            self._text = None


def _refuse_entities(*_: object) -> None:
    raise SitemapError("it declares entities, which a sitemap has no use for")
