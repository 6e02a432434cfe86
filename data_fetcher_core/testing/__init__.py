"""The kit that proves a store or a queue: one line for a store's author.

>>> import asyncio
>>> from data_fetcher_core.kv_store import create_kv_store
>>> asyncio.run(check_store(create_kv_store))
>>> asyncio.run(check_queue(create_kv_store))

The machines and strategies need Hypothesis, and are imported from their own modules:
:mod:`data_fetcher_core.testing.machines` and :mod:`data_fetcher_core.testing.strategies`.
"""

from data_fetcher_core.testing.clock import ManualClock
from data_fetcher_core.testing.faults import Fault, FaultyScriptStore, FaultyStore, make_faulty
from data_fetcher_core.testing.model import Model
from data_fetcher_core.testing.model_nouns import ModelOptions
from data_fetcher_core.testing.queue_checks import check_queue
from data_fetcher_core.testing.store_checks import check_store

__all__ = [
    "Fault",
    "FaultyScriptStore",
    "FaultyStore",
    "ManualClock",
    "Model",
    "ModelOptions",
    "check_queue",
    "check_store",
    "make_faulty",
]
