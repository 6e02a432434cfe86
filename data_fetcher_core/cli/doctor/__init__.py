"""``data-fetcher doctor``: whether everything is as it should be."""
