"""How a request enters the queue: its lane is its host, its key is its canonical URL."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from yarl import URL

from data_fetcher_core.core import Entry, RequestMeta
from data_fetcher_core.errors import ValidationError

_PART = 2_000


def lane_of(url: URL) -> str:
    """The host, with its port where that is not the usual one."""
    return _lane(url.scheme, url.raw_authority)


@lru_cache(maxsize=4_096)
def _lane(scheme: str, authority: str) -> str:
    url = URL.build(scheme=scheme, authority=authority, encoded=True)
    host = url.host or ""
    if url.explicit_port is None or url.is_default_port():
        return host
    return f"{host}:{url.explicit_port}"


def as_entry(given: Any) -> Entry:
    """A plain request gets a lane and a key. Who gives an entry of their own chooses its key."""
    if isinstance(given, RequestMeta):
        return Entry(given, lane=lane_of(given.url), key=given.fingerprint)
    if isinstance(given, Entry) and isinstance(given.item, RequestMeta):
        return given if given.lane is not None else replace(given, lane=lane_of(given.item.url))
    raise ValidationError(
        f"a locator gives RequestMeta, or an Entry with one, not {type(given).__name__}"
    )


async def as_entries(given: Sequence[Any]) -> list[Entry]:
    """Of a very long list a part at a time, so that the heart can beat in between."""
    entries = [as_entry(one) for one in given[:_PART]]
    for start in range(_PART, len(given), _PART):
        await asyncio.sleep(0)
        entries += [as_entry(one) for one in given[start : start + _PART]]
    return entries
