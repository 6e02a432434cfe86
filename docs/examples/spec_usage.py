"""A queue by itself, and a fetcher on a queue that it makes: the calls of the specification.

``python docs/examples/spec_usage.py`` runs both. The fetcher keeps its run in ``runs.db`` and its
pages in ``pages``: started again, it finds nothing left to do.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from yarl import URL

from data_fetcher_core.config_factory import create_fetcher_config
from data_fetcher_core.core import FetcherRecipe, FetchPlan, FetchRunContext, Page, RequestMeta
from data_fetcher_core.fetcher import Fetcher, FetchResult
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.queue import KVStoreQueue, RequestMetaSerializer


async def use_a_queue() -> list[object]:
    """Two requests in, one out."""
    kv_store = create_kv_store(store_type="memory")
    queue = KVStoreQueue(
        kv_store=kv_store, namespace="test_queue", serializer=RequestMetaSerializer()
    )
    requests = [
        RequestMeta(url=URL("https://example.com/1")),
        RequestMeta(url=URL("https://example.com/2")),
    ]
    await queue.enqueue(requests)
    size = await queue.size()
    print(f"{size} requests wait")
    dequeued = await queue.dequeue(max_items=1)
    await queue.close()
    await kv_store.close()
    return dequeued


class TwoPages:
    """A locator: it knows what to ask for."""

    def __init__(self) -> None:
        self.left = [RequestMeta(url=URL(f"https://example.com/{n}")) for n in (1, 2)]

    async def get_next_urls(self, ctx: FetchRunContext) -> list[RequestMeta]:
        found, self.left = self.left, []
        return found


class PretendLoader:
    """A loader: it gets a page and stores it. This one asks nobody."""

    async def load(
        self, request: RequestMeta, storage: Any, ctx: FetchRunContext, recipe: FetcherRecipe
    ) -> list[Page]:
        sink = storage.receive()
        await sink.write(f"the page at {request.url}".encode())
        stored = await sink.commit()
        page = Page(
            url=str(request.url),
            status=200,
            content_type="text/plain",
            length=stored.length,
            fetched_at=time.time(),
            digest=stored.digest,
            path=stored.path,
        )
        return [page]


recipe = FetcherRecipe(
    recipe_id="two-pages", bundle_locators=[TwoPages()], bundle_loader=PretendLoader()
)


async def use_a_fetcher(recipe: FetcherRecipe, **config: Any) -> FetchResult:
    """``config`` says where: ``kv_store_type="redis", storage_type="s3"`` and what these need."""
    app_config = await create_fetcher_config(**config)
    plan = FetchPlan(
        recipe=recipe,
        context=FetchRunContext(run_id="my_run", app_config=app_config),
        concurrency=4,
        target_queue_size=100,
    )
    fetcher = Fetcher()
    try:
        return await fetcher.run(plan)
    finally:
        await app_config.close()


async def main() -> None:
    print(*await use_a_queue())
    where = {"kv_store_type": "sqlite:///runs.db", "storage_type": "file", "file_path": "pages"}
    result = await use_a_fetcher(recipe, **where)
    print(f"{result.processed_count} pages now, {result.stats.completed} in all")


if __name__ == "__main__":
    asyncio.run(main())
