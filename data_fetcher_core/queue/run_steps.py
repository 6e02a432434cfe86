"""Opening and forgetting a run as a whole, over an ordered store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.transactional import family_end
from data_fetcher_core.queue.engine import STEP
from data_fetcher_core.queue.ordered_keys import OrderedKeys
from data_fetcher_core.queue.run_meta import (
    FORGETTING,
    ended_before,
    forgetting_meta,
    new_meta,
    read_meta,
)


class RunSteps:
    """The steps of one run; each is a function over a transaction."""

    def __init__(self, keys: OrderedKeys, namespace: bytes) -> None:
        self._keys = keys
        self._namespace = namespace

    def open(
        self, tx: Transaction, offered: Mapping[str, str], given: Sequence[str]
    ) -> dict[str, Any]:
        raw, first = tx.get_many([self._keys.meta, self._keys.first_meta])
        known = [one for one in (raw, first) if one is not None]
        meta = read_meta((known or [new_meta(self._namespace)])[0], self._namespace)
        forced = {name: offered[name] for name in given}
        meta["options"] = {**offered, **meta["options"], **forced}
        encoded = orjson.dumps(meta)
        if encoded != raw:
            tx.put_many([(self._keys.meta, encoded)])
        return meta

    def begin_to_forget(self, tx: Transaction, generation: str) -> None:
        meta = self._meta_at(tx, generation)
        if meta is not None:
            tx.put_many([(self._keys.meta, forgetting_meta(self._namespace, meta))])

    def forget_slice(self, tx: Transaction) -> bool:
        """The last one leaves a new, empty run: who held a lease of the old one has lost it."""
        meta = self._meta_at(tx, FORGETTING)
        if meta is None:
            return False
        found = tx.range(self._keys.all, family_end(self._keys.all), STEP)
        tx.delete_many([key for key, _ in found if key != self._keys.meta])
        if len(found) == STEP:
            return True
        tx.put_many([(self._keys.meta, new_meta(self._namespace, ended=ended_before(meta)))])
        return False

    def _meta_at(self, tx: Transaction, generation: str) -> dict[str, Any] | None:
        """What is stored of the run, if it is at this generation."""
        raw = tx.get_many([self._keys.meta])[0]
        meta = None if raw is None else read_meta(raw, self._namespace)
        return meta if meta and meta["generation"] == generation else None
