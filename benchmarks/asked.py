"""What a site was asked for, as it says itself, and what that makes of a crawl. Standard library
only: peers import it, too."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from urllib.parse import urlsplit


def asked(site_url: str) -> list[int]:
    """How often each page of a site was asked for."""
    connection = HTTPConnection(urlsplit(site_url).netloc, timeout=30)
    try:
        connection.request("GET", "/asked")
        counts: list[int] = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return counts


def distinct(counts: list[int]) -> int:
    """How many pages were asked for at all."""
    return sum(count > 0 for count in counts)


def again(counts: list[int]) -> int:
    """How many requests were for a page that had been asked for before."""
    return sum(count - 1 for count in counts if count > 1)


def check_complete(site_url: str, pages: int) -> None:
    """A rate is worth nothing unless every page was asked for."""
    found = distinct(asked(site_url))
    if found != pages:
        raise SystemExit(f"{found} of {pages} pages were fetched")
