"""Rows for a person to read. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_GAP = "  "


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as they need to be; the last one runs on."""
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
    return [_line(row, widths) for row in (heading, *rows)]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def facts(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Names and values, the values under each other."""
    width = max((len(name) for name, _ in pairs), default=0)
    return [f"{name.ljust(width)}{_GAP}{value}".rstrip() for name, value in pairs]
