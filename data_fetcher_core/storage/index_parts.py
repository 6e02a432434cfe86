"""The index where nothing can be appended to: parts of exactly a thousand lines.

A part that is complete never changes. The last one may be unfinished; it is written again with
more lines, never with fewer.
"""

from __future__ import annotations

from typing import NamedTuple

from data_fetcher_core.storage.index_lines import Entries, after, number_of, write_line

PART = 1000


class Part(NamedTuple):
    """Lines by their number."""

    number: int
    lines: dict[int, bytes]

    @property
    def is_complete(self) -> bool:
        return len(self.lines) == PART

    @property
    def end(self) -> int:
        return self.number * PART

    def content(self) -> bytes:
        return b"".join(self.lines[number] for number in sorted(self.lines))


def split(entries: Entries) -> list[Part]:
    """The entries as the parts they belong to, in order."""
    parts: list[Part] = []
    for number, entry in after(entries, 0):
        _part_for(number, parts).lines[number] = write_line(number, entry)
    return parts


def safe_end(parts: list[Part]) -> int:
    """The end of the complete parts that follow each other from the first on.

    All entries that are not safe were given: those before the first part are.
    """
    if not parts:
        return 0
    end = parts[0].end - PART
    for part in parts:
        if not part.is_complete or part.end != end + PART:
            break
        end = part.end
    return end


def merge(part: Part, content: bytes) -> Part:
    """The part with the lines of ``content``, which is an older or newer state of it."""
    there = {number_of(line): line + b"\n" for line in content.splitlines()}
    known = {number: line for number, line in there.items() if number is not None}
    return Part(part.number, {**known, **part.lines})


def _part_for(number: int, parts: list[Part]) -> Part:
    wanted = (number - 1) // PART + 1
    if not parts or parts[-1].number != wanted:
        parts.append(Part(wanted, {}))
    return parts[-1]
