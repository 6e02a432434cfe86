"""Workers drain the queue: load, ask for links, settle it all in one step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from data_fetcher_core.clock import Clock
from data_fetcher_core.core import Entry, FetchPlan, RequestMeta
from data_fetcher_core.deadlines import Deadlines
from data_fetcher_core.errors import FetchError, LeaseLost, StoreError
from data_fetcher_core.events import Fetched, Subscriber
from data_fetcher_core.fetcher.breakers import Breakers
from data_fetcher_core.fetcher.early import Early
from data_fetcher_core.fetcher.entering import as_entries
from data_fetcher_core.fetcher.exporting import has_index, index_entry
from data_fetcher_core.fetcher.pausing import Pauses
from data_fetcher_core.fetcher.settling import Failures
from data_fetcher_core.queue import Lease
from data_fetcher_core.urls import public_url

Line = Mapping[str, Any]
_MANY = (list, tuple)
Handler = Callable[[RequestMeta, Any, Any], Any]


class Worker:
    """What all workers of a run share; one call of :meth:`process` is one request."""

    def __init__(
        self,
        plan: FetchPlan,
        namespace: str,
        *,
        timeout: float,
        breakers: Breakers,
        failures: Failures,
        pauses: Pauses,
        clock: Clock,
        tell: Subscriber,
        early: Early,
    ) -> None:
        self._recipe = plan.recipe
        self._context = plan.context
        self._storage = getattr(plan.context.app_config, "storage", None)
        self._has_index = has_index(self._storage)
        self._early = early
        self._handlers = _handlers(plan.recipe.bundle_locators)
        self._namespace = namespace
        self._timeout = timeout
        self._deadlines = Deadlines(timeout)
        self._breakers = breakers
        self._failures = failures
        self._pauses = pauses
        self._clock = clock
        self._tell = tell
        self.processed = 0

    async def process(self, lease: Lease) -> None:
        begun = self._clock.monotonic()
        try:
            result, children = await self._load(lease.item)
            url = str(public_url(lease.item.url))
            line = index_entry(result) or {"url": url}
            await self._complete(lease, line, children)
        except (StoreError, LeaseLost):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a loader raises is settled
            has_ended = await self._failures.settle(lease, error)
            self.processed += has_ended
        else:
            await self._breakers.note_good(lease)
            self.processed += 1
            seconds = self._clock.monotonic() - begun
            status, length = line.get("status"), line.get("length") or 0
            self._tell(
                Fetched(self._namespace, url, lease.lane, status, length, len(children), seconds)
            )

    async def _load(self, request: RequestMeta) -> tuple[Any, list[Entry]]:
        try:
            with self._deadlines.begin():
                loader = self._recipe.bundle_loader
                result = await loader.load(request, self._storage, self._context, self._recipe)
                return result, await self._children(request, result)
        except TimeoutError:
            raise FetchError(f"it took longer than {self._timeout:g} s") from None

    async def _children(self, request: RequestMeta, result: Any) -> list[Entry]:
        children: list[Entry] = []
        for handle in self._handlers:
            given = handle(request, result, self._context)
            found = await given if inspect.isawaitable(given) else given
            if isinstance(found, _MANY):
                children += await as_entries(found)
        return children

    async def _complete(self, lease: Lease, line: Line, children: list[Entry]) -> None:
        result = line if self._has_index else None
        last, _ = await self._early.bring(children)
        await self._pauses.insist(lambda: lease.complete(last, result=result))


def _handlers(locators: Sequence[Any]) -> list[Handler]:
    found = (getattr(locator, "handle_url_processed", None) for locator in locators)
    return [handle for handle in found if callable(handle)]
