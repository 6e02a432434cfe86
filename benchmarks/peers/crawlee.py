"""Crawlee's HttpCrawler, in memory or on the file system.

On the file system its purge on start is off, without which nothing would be resumed. It is told to
begin with as many requests at a time as it may have.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from crawlee import ConcurrencySettings
from crawlee.configuration import Configuration
from crawlee.crawlers import HttpCrawler, HttpCrawlingContext
from crawlee.storage_clients import FileSystemStorageClient, MemoryStorageClient

from benchmarks.crawling import LINK, Processed, contend


def crawler_for(given: dict[str, Any]) -> HttpCrawler:
    memory = given["frontier"] == "memory"
    many = given["concurrency"]
    return HttpCrawler(
        storage_client=MemoryStorageClient() if memory else FileSystemStorageClient(),
        configuration=Configuration(storage_dir=given["folder"] + "/crawlee", purge_on_start=False),
        concurrency_settings=ConcurrencySettings(
            min_concurrency=many, desired_concurrency=many, max_concurrency=many
        ),
        configure_logging=False,
    )


async def crawl(given: dict[str, Any]) -> None:
    logging.disable(logging.WARNING)
    crawler = crawler_for(given)
    processed = Processed(given)
    address = given["site_url"]

    @crawler.router.default_handler
    async def handle(context: HttpCrawlingContext) -> None:
        body = await context.http_response.read()
        links = [address + link.decode() for link in LINK.findall(body)]
        if links:
            await context.add_requests(links)
        processed.add(context.request.url)

    await crawler.run([address + "/"])


def run(given: dict[str, Any]) -> None:
    asyncio.run(crawl(given))


if __name__ == "__main__":
    contend("benchmarks.peers.crawlee", run)
