"""The errors under the name older code imports them by; they are defined in :mod:`.errors`."""

from data_fetcher_core.errors import (
    ConfigurationError,
    DataFetcherError,
    FetchError,
    LeaseLost,
    QueueClosed,
    QueueFull,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLost,
    StoreUnavailable,
    ValidationError,
)

__all__ = [
    "ConfigurationError",
    "DataFetcherError",
    "FetchError",
    "LeaseLost",
    "QueueClosed",
    "QueueFull",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLost",
    "StoreUnavailable",
    "ValidationError",
]
