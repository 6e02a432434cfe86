"""Bytes that come piece by piece, are wanted as one, and are never in memory twice.

A buffer that grows is moved by the allocator now and then, and is there twice meanwhile. So what is
long lies in segments that are the system's own, and each goes back to it when its bytes are joined
to the others.
"""

from __future__ import annotations

import mmap
from io import BytesIO

_SEGMENT = 1024 * 1024
# What is larger than any block of its heap, an allocator gets from the system: pages that are not
# there before they are written to. (The largest that glibc ever keeps in its heap is 32 MiB.)
_NOT_IN_THE_HEAP = 33 * 1024 * 1024


class Gathering:
    def __init__(self) -> None:
        self._segments: list[mmap.mmap] = []
        self._recent = BytesIO()
        self._length = 0

    def add(self, piece: bytes) -> None:
        self._length += len(piece)
        self._recent.write(piece)
        if self._recent.tell() >= _SEGMENT:
            self._segments.append(_segment(self._recent))
            self._recent = BytesIO()

    def joined(self) -> bytes:
        """All of it; to be asked for once."""
        if not self._segments:
            return self._recent.getvalue()
        # Nobody else holds these zeros: they are written over where they lie, and given away so.
        whole = BytesIO(bytes(max(self._length, _NOT_IN_THE_HEAP)))
        for segment in self._segments:
            with segment:
                whole.write(segment)
        whole.write(self._recent.getbuffer())
        whole.truncate()
        return whole.getvalue()


def _segment(filled: BytesIO) -> mmap.mmap:
    try:
        segment = mmap.mmap(-1, filled.tell(), access=mmap.ACCESS_COPY)
    except OSError as error:
        raise MemoryError(f"a segment of {filled.tell()} bytes: {error}") from error
    segment.write(filled.getbuffer())
    return segment
