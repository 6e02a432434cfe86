"""A crawl you can kill: an asyncio-native, resumable request queue.

Start with :mod:`data_fetcher_core.core` for the nouns and :func:`open_queue` for the verbs.
"""

from data_fetcher_core.core import (
    DeadLetter,
    Enqueued,
    Entry,
    Failure,
    Priority,
    QueueStats,
    RequestMeta,
)
from data_fetcher_core.queue import Lease, QueueOptions
from data_fetcher_core.queue.opening import open_queue

__all__ = [
    "DeadLetter",
    "Enqueued",
    "Entry",
    "Failure",
    "Lease",
    "Priority",
    "QueueOptions",
    "QueueStats",
    "RequestMeta",
    "open_queue",
]
