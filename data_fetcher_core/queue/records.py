"""The record: one request as the bytes that every store keeps, whole, in one place.

::

    0   version        1 byte
    1   flags          1 byte    bit 0: the body is compressed
    2   priority       1 byte
    3   id length      1 byte
    4   attempts       2 bytes
    6   deaths         2 bytes
    8   ready_at       8 bytes   microseconds; stamped by the store
    16  expires_at     8 bytes   microseconds, 0 for never; stamped by the store
    24  lane length    2 bytes
    26  key length     2 bytes
    28  history length 4 bytes
    32  body length    4 bytes
    36  checksum       4 bytes   over id, lane and key, with their lengths, and body
    40  id, lane, key, history, body

What comes before the body is the head: settling a lease sends a new head, never the body again.
Numbers are big-endian, and stand at fixed places so that a script can read and change them.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import orjson

from data_fetcher_core.core import Failure

VERSION = 1
HEADER = struct.Struct(">BBBBHHQQHHIII")
_HEADER_SIZE = HEADER.size
# Where some of its fields stand.
_PRIORITY, _ID_SIZE, _LANE_SIZE, _KEY_SIZE, _HISTORY_SIZE = 2, 3, 8, 9, 10
READY_AT = struct.Struct(">Q")
READY_AT_OFFSET = 8
_STAMPS = struct.Struct(">QQ")
_DEATHS = struct.Struct(">H")
_SIZES = struct.Struct(">BHH")
_DEATHS_OFFSET = 6
_COMPRESSED = 1
MOST_COUNTED = 0xFFFF

FAILURES_KEPT = 5
_LONGEST_MESSAGE = 500


class CorruptRecord(ValueError):
    """Bytes that are not a record, or not the record that was written."""


class Fields(NamedTuple):
    """What decides whether and when a request is handed out."""

    deaths: int
    ready_at: int
    expires_at: int


class Record(NamedTuple):
    """A request as the queue sees it; ``lane``, ``key`` and ``body`` are UTF-8."""

    id: bytes
    lane: bytes
    key: bytes
    priority: int
    body: bytes
    attempts: int = 0
    deaths: int = 0
    ready_at: int = 0
    expires_at: int = 0
    history: bytes = b""
    compressed: bool = False

    def head(self) -> bytes:
        sizes, names = (len(self.id), len(self.lane), len(self.key)), self.id + self.lane + self.key
        return (
            HEADER.pack(
                VERSION,
                _COMPRESSED if self.compressed else 0,
                self.priority,
                len(self.id),
                min(self.attempts, MOST_COUNTED),
                min(self.deaths, MOST_COUNTED),
                self.ready_at,
                self.expires_at,
                len(self.lane),
                len(self.key),
                len(self.history),
                len(self.body),
                _checksum(sizes, names, self.body),
            )
            + names
            + self.history
        )

    def encode(self) -> bytes:
        return self.head() + self.body


def decode(raw: bytes) -> Record:
    """The record in ``raw``; raises :class:`CorruptRecord` where it is not what was written."""
    if len(raw) < HEADER.size:
        raise CorruptRecord(f"{len(raw)} bytes are too few for a record")
    (
        version,
        flags,
        priority,
        id_length,
        attempts,
        deaths,
        ready_at,
        expires_at,
        lane_length,
        key_length,
        history_length,
        body_length,
        checksum,
    ) = HEADER.unpack_from(raw)
    if version != VERSION or flags > _COMPRESSED or not 1 <= priority <= 6:
        raise CorruptRecord("the header is not one of a record")
    lane_at = _HEADER_SIZE + id_length
    key_at = lane_at + lane_length
    history_at = key_at + key_length
    body_at = history_at + history_length
    if body_at + body_length != len(raw):
        raise CorruptRecord("the lengths do not add up")
    body = raw[body_at:]
    sizes = id_length, lane_length, key_length
    if checksum != _checksum(sizes, raw[_HEADER_SIZE:history_at], body):
        raise CorruptRecord("the checksum does not match")
    return Record(
        raw[_HEADER_SIZE:lane_at],
        raw[lane_at:key_at],
        raw[key_at:history_at],
        priority,
        body,
        attempts,
        deaths,
        ready_at,
        expires_at,
        raw[history_at:body_at],
        bool(flags & _COMPRESSED),
    )


def _checksum(sizes: tuple[int, int, int], names: bytes, body: bytes) -> int:
    """Over id, lane and key, one after another, and the body.

    And over where each of the names ends: the same bytes cut otherwise are another request.
    """
    return zlib.crc32(body, zlib.crc32(names, zlib.crc32(_SIZES.pack(*sizes))))


def is_whole(raw: bytes) -> bool:
    """Whether ``raw`` has the shape of a record: what a store checks before it reads a field."""
    return fields_of(raw) is not None


def fields_of(raw: bytes) -> Fields | None:
    """What a store needs to know of a record; ``None`` if it has not the shape of one."""
    if len(raw) < _HEADER_SIZE:
        return None
    version, _, priority, id_size, _, deaths, ready_at, expires_at, *sizes, _ = HEADER.unpack_from(
        raw
    )
    if version != VERSION or not 1 <= priority <= 6:
        return None
    if _HEADER_SIZE + id_size + sum(sizes) != len(raw):
        return None
    return Fields(deaths, ready_at, expires_at)


def stamp(raw: bytes, ready_at: int) -> bytes:
    """The record with the instant at which it became ready."""
    after = READY_AT_OFFSET + READY_AT.size
    return raw[:READY_AT_OFFSET] + READY_AT.pack(ready_at) + raw[after:]


def stamp_new(raw: bytes, ready_at: int, expires_at: int) -> bytes:
    """The record with both its instants."""
    after = READY_AT_OFFSET + _STAMPS.size
    return raw[:READY_AT_OFFSET] + _STAMPS.pack(ready_at, expires_at) + raw[after:]


def count_death(raw: bytes) -> tuple[bytes, int]:
    """The record with one more death, and how many that makes."""
    deaths = min(_DEATHS.unpack_from(raw, _DEATHS_OFFSET)[0] + 1, MOST_COUNTED)
    after = _DEATHS_OFFSET + _DEATHS.size
    return raw[:_DEATHS_OFFSET] + _DEATHS.pack(deaths) + raw[after:], deaths


def forgive(raw: bytes) -> bytes:
    """The record with attempts, deaths and expiry at zero; its history stays."""
    return raw[:4] + b"\0\0\0\0" + raw[8:16] + bytes(8) + raw[24:]


def lane_and_priority(raw: bytes) -> tuple[bytes, int]:
    """Which list a whole record belongs to."""
    header = HEADER.unpack_from(raw)
    start = _HEADER_SIZE + header[_ID_SIZE]
    return raw[start : start + header[_LANE_SIZE]], header[_PRIORITY]


def identity_of(raw: bytes) -> bytes:
    """The id in a whole record."""
    return raw[_HEADER_SIZE : _HEADER_SIZE + raw[_ID_SIZE]]


def ready_at_of(raw: bytes) -> int:
    """When a whole record became ready."""
    (ready_at,) = READY_AT.unpack_from(raw, READY_AT_OFFSET)
    return int(ready_at)


def key_of(raw: bytes) -> bytes:
    """The deduplication key in a whole record, empty without one."""
    header = HEADER.unpack_from(raw)
    start = _HEADER_SIZE + header[_ID_SIZE] + header[_LANE_SIZE]
    return raw[start : start + header[_KEY_SIZE]]


def body_of(raw: bytes) -> bytes:
    """The body alone; the rest of a leased record is replaced when it is settled."""
    header = HEADER.unpack_from(raw)
    names = header[_ID_SIZE] + header[_LANE_SIZE] + header[_KEY_SIZE]
    return raw[_HEADER_SIZE + names + header[_HISTORY_SIZE] :]


def pack_failures(failures: tuple[Failure, ...]) -> bytes:
    """The last few failures, for the record's history."""
    kept = failures[-FAILURES_KEPT:]
    return orjson.dumps([[_plain(f.kind), _plain(f.message), f.at] for f in kept]) if kept else b""


def unpack_failures(history: bytes) -> tuple[Failure, ...]:
    """The failures in a history; one that cannot be read is told as such, not raised."""
    if not history:
        return ()
    try:
        return tuple(Failure(str(k), str(m), float(at)) for k, m, at in orjson.loads(history))
    except (ValueError, TypeError):
        return (Failure("unreadable", repr(history[:80]), 0.0),)


def _plain(text: str) -> str:
    return text[:_LONGEST_MESSAGE].encode(errors="replace").decode()
