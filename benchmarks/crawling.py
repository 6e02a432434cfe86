"""How every crawler of the suite is measured, ours, bare or a peer. Standard library only.

A crawler is a function that crawls the site of ``site_url`` with ``concurrency`` requests at a
time, and returns when it is done. With ``kill_at``, it is killed and resumed instead.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from benchmarks.asked import check_complete
from benchmarks.contract import parameters, peak_memory_mb, rate, tell
from benchmarks.killing import killed_and_resumed

Crawl: TypeAlias = Callable[[dict[str, Any]], None]
LINK = re.compile(rb'href="([^"]+)"')


def contend(module: str, crawl: Crawl, check: Crawl | None = None) -> None:
    """The whole of a contender: crawl, or be killed while crawling, and tell.

    ``check`` looks at what is left behind, outside the measured time.
    """
    given = parameters()
    if "kill_at" in given:
        tell(killed_and_resumed(module, given))
        return
    found = measured(given, crawl)
    if check is not None:
        check(given)
    tell(found)


def measured(given: dict[str, Any], crawl: Crawl) -> dict[str, float]:
    begin = time.perf_counter()
    crawl(given)
    seconds = time.perf_counter() - begin
    if not given.get("resumable"):
        check_complete(given["site_url"], given["pages"])
    return {
        "pages_per_second": rate(given["pages"], seconds),
        "peak_memory_mb": peak_memory_mb(),
    }


class Processed:
    """The pages that a crawler has seen to, written down at once, so that a kill forgets none."""

    def __init__(self, given: dict[str, Any]) -> None:
        path = given.get("processed")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if path else None

    def add(self, url: str) -> None:
        if self._file is not None:
            os.write(self._file, f"{url}\n".encode())
