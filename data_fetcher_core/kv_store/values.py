"""What may be a key, a value, a limit or a time to live; checked once, at the door."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any

import orjson

from data_fetcher_core.checking import is_number, is_whole_number
from data_fetcher_core.errors import StoreCorrupt, ValidationError
from data_fetcher_core.showing import shown

_LONGEST_KEY = 16_384


def encode_text(text: str, what: str) -> bytes:
    """``text`` as UTF-8, or a :class:`ValidationError` that names ``what``."""
    if not isinstance(text, str):
        raise ValidationError(f"{what} must be a string, not {type(text).__name__}")
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise ValidationError(f"{what} {text[:80]!r} holds a lone surrogate: {error}") from None
    if len(encoded) > _LONGEST_KEY:
        raise ValidationError(
            f"{what} {text[:40]!r}… is {len(encoded)} bytes long; {_LONGEST_KEY} is the most: "
            "use a digest of it"
        )
    return encoded


def encode_value(value: Any, holder: str = "a store") -> bytes:
    """``value`` as JSON, or a :class:`ValidationError` that says who holds only that."""
    try:
        encoded = orjson.dumps(value)
    except TypeError as error:
        raise ValidationError(
            f"{holder} holds what JSON holds, and {type(value).__name__} does not fit: {error}"
        ) from None
    # What is no number would be written as null, and come back as None.
    if b"null" in encoded and (strange := next(_no_numbers(value), None)) is not None:
        raise ValidationError(
            f"{holder} holds what JSON holds, and {strange} is no number there: use None or a text"
        )
    return encoded


def _no_numbers(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        if not math.isfinite(value):
            yield value
    elif isinstance(value, Mapping):
        yield from chain.from_iterable(map(_no_numbers, value.values()))
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(map(_no_numbers, value))
    elif is_dataclass(value):
        yield from chain.from_iterable(_no_numbers(getattr(value, f.name)) for f in fields(value))


def decode_value(encoded: bytes) -> Any:
    """The value written by :func:`encode_value`."""
    try:
        return orjson.loads(encoded)
    except orjson.JSONDecodeError as error:
        raise StoreCorrupt(f"a stored value is not JSON: {shown(encoded)}") from error


def check_ttl(ttl: float | None) -> float | None:
    """A time to live in seconds, above zero and finite; ``None`` for no end."""
    if ttl is None:
        return None
    if not is_number(ttl) or not 0 < ttl < math.inf:
        raise ValidationError(f"ttl must be a number of seconds above 0, not {shown(ttl)}")
    return float(min(ttl, 1e10))


def check_limit(limit: int | None) -> int | None:
    """How many at most; ``None`` for all, below zero for none."""
    if limit is None:
        return None
    if not is_whole_number(limit):
        raise ValidationError(f"limit must be a whole number or None, not {shown(limit)}")
    return min(max(limit, 0), sys.maxsize)
