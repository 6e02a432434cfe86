"""A run: locators feed, workers drain."""

from data_fetcher_core.fetcher.breaker import BreakerOptions
from data_fetcher_core.fetcher.fetcher import Fetcher
from data_fetcher_core.fetcher.options import FetcherOptions
from data_fetcher_core.fetcher.result import FetchResult
from data_fetcher_core.fetcher.stopping import Stop

__all__ = ["BreakerOptions", "FetchResult", "Fetcher", "FetcherOptions", "Stop"]
