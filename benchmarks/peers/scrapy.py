"""Scrapy: in memory, with a JOBDIR, or with the scheduler of scrapy-redis.

robots.txt is left alone, and cookies, redirects and retries are off: the least it can do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Request, Response

from benchmarks.crawling import LINK, Processed, contend

QUIET = {
    "LOG_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "ROBOTSTXT_OBEY": False,
    "COOKIES_ENABLED": False,
    "REDIRECT_ENABLED": False,
    "RETRY_ENABLED": False,
    "DOWNLOAD_DELAY": 0,
}


class Spider(scrapy.Spider):
    name = "crawl"

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self.start_urls = [given["site_url"] + "/"]
        self._processed = Processed(given)

    def parse(self, response: Response) -> Iterator[Request]:
        for link in LINK.findall(response.body):
            yield response.follow(link.decode())
        self._processed.add(response.url)


def frontier(given: dict[str, Any]) -> dict[str, Any]:
    """Where what waits is kept."""
    kinds: dict[str, dict[str, Any]] = {
        "memory": {},
        "jobdir": {"JOBDIR": given["folder"] + "/job"},
        "redis": {
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
            "SCHEDULER_PERSIST": True,
            "REDIS_URL": given.get("redis_url"),
        },
    }
    return kinds[given["frontier"]]


def run(given: dict[str, Any]) -> None:
    many = dict.fromkeys(
        ("CONCURRENT_REQUESTS", "CONCURRENT_REQUESTS_PER_DOMAIN"), given["concurrency"]
    )
    process = CrawlerProcess({**QUIET, **many, **frontier(given)})
    process.crawl(Spider, given=given)
    process.start()


if __name__ == "__main__":
    contend("benchmarks.peers.scrapy", run)
