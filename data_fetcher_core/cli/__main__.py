"""``python -m data_fetcher_core.cli`` is ``data-fetcher``."""

from data_fetcher_core.cli import main

main()
