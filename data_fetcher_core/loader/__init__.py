"""Pages by HTTP: one request in, one page out, whatever the server does."""

from data_fetcher_core.loader.http_loader import HttpLoader
from data_fetcher_core.loader.options import HttpOptions

__all__ = ["HttpLoader", "HttpOptions"]
