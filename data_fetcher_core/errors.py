"""Every error this package raises, as one tree.

::

    DataFetcherError
    ├── the caller's mistake
    │   ├── ConfigurationError   a setting that cannot be (also a ValueError)
    │   ├── ValidationError      a value that cannot be (also a ValueError)
    │   ├── QueueFull            the queue's capacity is reached
    │   ├── QueueClosed          enqueue after shutdown()
    │   └── LeaseLost            the lease belongs to nobody, or to somebody else
    └── what failed outside
        ├── StoreError
        │   ├── StoreUnavailable   could not be reached or did not answer in time
        │   ├── StoreCorrupt       answered with what cannot be true
        │   ├── StoreFull          has no room for new requests
        │   └── StoreLost          came back empty, or is gone
        ├── StorageError           bytes could not be stored
        │   └── StorageFull        there is no room for them
        ├── OutOfResources         this process may not have more files or memory
        └── FetchError             a page could not be had
            ├── Postponed          not now: its host wants to be asked more slowly
            └── Skipped            it must not be had, and that is no failure
"""

from __future__ import annotations


class DataFetcherError(Exception):
    """The base of all errors of this package.

    ``accepted`` says how many requests of an ``enqueue`` were safely in the queue when it failed.
    """

    accepted: int = 0


class ConfigurationError(DataFetcherError, ValueError):
    """A setting that cannot be."""


class ValidationError(DataFetcherError, ValueError):
    """A value that cannot be."""


class QueueFull(DataFetcherError):
    """The queue holds as many requests as its capacity allows."""


class QueueClosed(DataFetcherError):
    """The queue was shut down and takes no new requests."""


class LeaseLost(DataFetcherError):
    """The lease was settled before, taken back by a sweep, or never existed."""


class StoreError(DataFetcherError):
    """The store failed."""


class StoreUnavailable(StoreError):
    """The store could not be reached, or did not answer in time."""


class StoreCorrupt(StoreError):
    """The store holds something that this package did not write, or not like this."""


class StoreFull(StoreError):
    """The store has no room for new requests; settling still works."""


class StoreLost(StoreError):
    """The store came back without the run it held, or its file is gone."""


class StorageError(DataFetcherError):
    """Bytes could not be stored."""


class StorageFull(StorageError):
    """The storage has no room."""


class OutOfResources(DataFetcherError):
    """This process may not have more files, or memory: no host and no request is to blame."""


class FetchError(DataFetcherError):
    """A page could not be had."""

    def __init__(
        self, message: str, *, retryable: bool = True, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after


class Postponed(FetchError):
    """The host wants to be asked no more often than every ``interval`` seconds.

    The fetcher paces the lane of the host and gives the request back; no attempt is spent.
    """

    def __init__(self, message: str, *, interval: float) -> None:
        super().__init__(message)
        self.interval = interval


class Skipped(FetchError):
    """The request is done without having been made: robots.txt forbids it, say."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)
