"""The crawl again, of a site as sites are made: an ordinary aiohttp.web server."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.workloads import crawl

WORKLOAD = replace(
    crawl.WORKLOAD,
    name="crawl-aiohttp",
    title="The same crawl, of an ordinary aiohttp.web server",
    parameters={**crawl.WORKLOAD.parameters, "site_kind": "aiohttp"},
    contenders=(*crawl.OURS, *crawl.LIMITS),
    metrics=(
        replace(crawl.PAGES_PER_SECOND, targets=crawl.PAGES_PER_SECOND.targets[:2]),
        crawl.PEAK_MEMORY,
    ),
)
