"""A bare aiohttp loop over an ``asyncio.Queue``. It loses everything when it dies."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from benchmarks.crawling import LINK, contend
from benchmarks.loops import run_on


async def crawl(address: str, concurrency: int) -> None:
    queue: asyncio.Queue[str] = asyncio.Queue()
    seen = {"/"}
    queue.put_nowait("/")

    async def work(session: aiohttp.ClientSession) -> None:
        while True:
            path = await queue.get()
            async with session.get(address + path) as response:
                body = await response.read()
            for link in LINK.findall(body):
                if (found := link.decode()) not in seen:
                    seen.add(found)
                    queue.put_nowait(found)
            queue.task_done()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        workers = [asyncio.create_task(work(session)) for _ in range(concurrency)]
        await queue.join()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def run(given: dict[str, Any]) -> None:
    run_on(given["loop"], crawl(given["site_url"], given["concurrency"]))


if __name__ == "__main__":
    contend("benchmarks.limits.crawl", run)
