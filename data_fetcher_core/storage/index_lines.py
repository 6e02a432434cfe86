"""The lines of the index: compact JSON, with the number first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import orjson

from data_fetcher_core.checking import is_whole_number
from data_fetcher_core.errors import ValidationError

Entries: TypeAlias = Sequence[tuple[int, Mapping[str, Any]]]
_BEGINNING = b'{"n":'
# No line of ours holds this byte: JSON writes it in another way.
_NEVER_WRITTEN = b"\0"


def write_line(number: int, entry: Mapping[str, Any]) -> bytes:
    line = {"n": number, **entry}
    line["n"] = number
    try:
        return orjson.dumps(
            line, default=str, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
        )
    except TypeError as error:
        raise ValidationError(
            f"entry {number} of the index cannot be written as JSON: {error}"
        ) from None


def number_of(line: bytes) -> int | None:
    """The number of a line, ``None`` if it is none of ours."""
    try:
        read = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    number = read.get("n") if isinstance(read, dict) else None
    return number if is_whole_number(number) else None


def is_torn(tail: bytes) -> bool:
    """What follows the last whole line is the beginning of one of ours, or was never written."""
    return tail.startswith(_BEGINNING[: len(tail)]) or _NEVER_WRITTEN in tail


def is_foreign_line(line: bytes) -> bool:
    """Neither a line of ours, nor what is left of some around a block that was never written."""
    return number_of(line) is None and _NEVER_WRITTEN not in line


def after(entries: Entries, last: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Those with a larger number, in order, each once."""
    for number, entry in sorted(entries, key=lambda numbered: numbered[0]):
        if number > last:
            last = number
            yield number, entry
