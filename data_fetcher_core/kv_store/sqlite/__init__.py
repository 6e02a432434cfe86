"""The store in one SQLite file: durable, ordered, shared by the processes of one host.

How it is cut: :mod:`store` is the face, :mod:`writer` the thread behind it, :mod:`commit` runs
what waits there as one transaction, :mod:`session` opens the file. Beside the database lie its
companion (``-lock``) and its reserve (``-reserve``); each has a module that says why.
"""

from data_fetcher_core.kv_store.sqlite.connection import connect
from data_fetcher_core.kv_store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore", "connect"]
