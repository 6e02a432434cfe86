"""Which statuses are answers, and what the others are. Pure."""

from __future__ import annotations

import time

from aiohttp import ClientResponse

from data_fetcher_core.errors import FetchError
from data_fetcher_core.loader.headers import readable
from data_fetcher_core.loader.retry_after import parse_retry_after

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LATER = frozenset({408, 425, 429})
_NEVER = frozenset({501, 505})


def is_answer(status: int) -> bool:
    """Whether the server told what it has to tell: a page, that there is none, or no access."""
    return 200 <= status < 500 and status not in _LATER


def failure_of_status(response: ClientResponse, shown: str) -> FetchError:
    """What a status that is no answer means. One beyond all classes counts as a server's error."""
    headers = response.headers
    reason = readable(response.reason or "")[:80]
    message = f"{shown}: {response.status} {reason}".rstrip()
    if response.status < 200 or response.status in _NEVER:
        return FetchError(message, retryable=False)
    after = parse_retry_after(headers.get("Retry-After"), headers.get("Date"), time.time())
    return FetchError(message, retry_after=after)
