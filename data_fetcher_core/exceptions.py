"""The errors under the name older code imports them by; they are defined in :mod:`.errors`."""

from data_fetcher_core.errors import (
    ConfigurationError,
    DataFetcherError,
    FetchError,
    LeaseLost,
    Postponed,
    QueueClosed,
    QueueFull,
    Skipped,
    StorageError,
    StorageFull,
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
    "Postponed",
    "QueueClosed",
    "QueueFull",
    "Skipped",
    "StorageError",
    "StorageFull",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLost",
    "StoreUnavailable",
    "ValidationError",
]
