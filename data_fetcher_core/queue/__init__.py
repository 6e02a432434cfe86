"""Requests in lanes, leased and settled, over any store."""

from data_fetcher_core.queue.base import RequestQueue, Serializer
from data_fetcher_core.queue.kv_store_queue import KVStoreQueue
from data_fetcher_core.queue.lease import Lease
from data_fetcher_core.queue.options import QueueOptions
from data_fetcher_core.queue.serializers import JSONSerializer, RequestMetaSerializer

__all__ = [
    "JSONSerializer",
    "KVStoreQueue",
    "Lease",
    "QueueOptions",
    "RequestMetaSerializer",
    "RequestQueue",
    "Serializer",
]
