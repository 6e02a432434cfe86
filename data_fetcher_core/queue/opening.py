"""A queue by the URL of its store."""

from __future__ import annotations

from typing import Self

from data_fetcher_core.clock import SYSTEM_CLOCK, Clock
from data_fetcher_core.events import Subscriber, log_event
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.factory import create_kv_store
from data_fetcher_core.queue.base import Serializer
from data_fetcher_core.queue.entries import run_namespace
from data_fetcher_core.queue.kv_store_queue import KVStoreQueue
from data_fetcher_core.queue.options import QueueOptions
from data_fetcher_core.queue.serializers import RequestMetaSerializer


class OwningQueue(KVStoreQueue):
    """A queue that closes the store that was made for it; the next verb opens both again."""

    async def __aenter__(self) -> Self:
        try:
            return await super().__aenter__()
        except BaseException:
            await self._store.close()
            raise

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self._store.close()


def open_queue(
    store: str | KeyValueStore,
    *,
    run_id: str,
    serializer: Serializer | None = None,
    options: QueueOptions | None = None,
    update: bool = False,
    clock: Clock = SYSTEM_CLOCK,
    subscriber: Subscriber = log_event,
) -> KVStoreQueue:
    """Open the queue of a run, with ``async with``.

    ``store`` is a URL (``memory://``, ``sqlite:///runs.db``, ``redis://…``), and closed with
    the queue; or a store of your own, and left open.
    """
    namespace = run_namespace(run_id)
    kind = OwningQueue if isinstance(store, str) else KVStoreQueue
    return kind(
        create_kv_store(store) if isinstance(store, str) else store,
        namespace,
        serializer or RequestMetaSerializer(),
        options=options,
        update=update,
        clock=clock,
        subscriber=subscriber,
    )
