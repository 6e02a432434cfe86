"""An answer that lists more requests than may enter the queue in one step: it is asked again.

The first part of what it lists is returned together with one request more, for the same URL and
flagged with where to go on. Its key is its own, or it would be taken for the one before. Pure.
"""

from __future__ import annotations

from data_fetcher_core.core import Entry, RequestMeta
from data_fetcher_core.queue.engine import MOST_CHILDREN

# One place is for the request that goes on.
LARGEST_PART = MOST_CHILDREN - 1
_FLAG = "from"


def part_start(request: RequestMeta) -> int:
    """Where to go on in what the answer lists."""
    start = request.flags.get(_FLAG)
    return start if isinstance(start, int) and start > 0 else 0


def next_part(request: RequestMeta, key: str) -> Entry:
    """The request for the part after this one; ``key`` is what the first part was known by."""
    start = part_start(request) + LARGEST_PART
    flags = {**request.flags, _FLAG: start}
    again = RequestMeta(request.url, request.depth, request.referer, request.headers, flags)
    return Entry(again, key=part_key(key, start))


def part_key(key: str, start: int) -> str:
    return f"{key}:{start}" if start else key
