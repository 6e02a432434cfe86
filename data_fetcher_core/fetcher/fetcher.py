"""Runs a plan: locators feed and workers drain one queue, under one task group."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from data_fetcher_core.checking import is_whole_number
from data_fetcher_core.clock import SYSTEM_CLOCK, Clock
from data_fetcher_core.core import FetchPlan, FetchRunContext
from data_fetcher_core.errors import (
    ConfigurationError,
    StoreError,
    StoreFull,
    StoreUnavailable,
    ValidationError,
)
from data_fetcher_core.events import Subscriber, guarded, log_event
from data_fetcher_core.fetcher.breakers import Breakers
from data_fetcher_core.fetcher.early import Early
from data_fetcher_core.fetcher.exporting import Exporter, has_index
from data_fetcher_core.fetcher.feeding import Feeder
from data_fetcher_core.fetcher.options import FetcherOptions
from data_fetcher_core.fetcher.pausing import FULL, Pauses
from data_fetcher_core.fetcher.refilling import Refill
from data_fetcher_core.fetcher.result import FetchResult
from data_fetcher_core.fetcher.settling import Failures
from data_fetcher_core.fetcher.stopping import Stop
from data_fetcher_core.fetcher.turns import locator_of, name_locators
from data_fetcher_core.fetcher.working import Worker
from data_fetcher_core.queue import KVStoreQueue, Lease, RequestMetaSerializer
from data_fetcher_core.queue.engine import was_forgotten
from data_fetcher_core.queue.entries import run_namespace
from data_fetcher_core.queue.stream import LeaseStream
from data_fetcher_core.showing import shown

T = TypeVar("T")
BIRTH = "birth"
# Each is a task from the beginning: more would only be memory.
_MOST_WORKERS = 100_000
_LARGEST_TARGET = 10**9
# How long a run that failed or was cancelled may take to give back: milliseconds, usually.
_GOODBYE = 2.0


class Fetcher:
    """Keeps nothing between two runs: any number of plans may be run with one, also at once."""

    def __init__(
        self,
        options: FetcherOptions | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        subscriber: Subscriber = log_event,
    ) -> None:
        self._options = options or FetcherOptions()
        self._clock = clock
        self._tell = guarded(subscriber)

    async def run(self, plan: FetchPlan, stop: Stop | None = None) -> FetchResult:
        """Go on with the run until nothing is left, or until it is asked to stop.

        Any number of processes may do so at once. What is in flight when this one ends, however
        it ends, is not lost.
        """
        check_plan(plan)
        queue = self._queue(plan)
        try:
            async with _left(queue):
                run = _Run(plan, queue, self._options, self._clock, self._tell)
                with single_cause():
                    return await run.go(stop or Stop())
        finally:
            await _close(plan.recipe.bundle_loader)

    def _queue(self, plan: FetchPlan) -> KVStoreQueue:
        return KVStoreQueue(
            store_of(plan.context),
            run_namespace(plan.context.run_id),
            RequestMetaSerializer(),
            options=self._options.for_queue(len(plan.recipe.bundle_locators)),
            update=True,
            follows=False,
            clock=self._clock,
            subscriber=self._tell,
        )


class _Run:
    """One call of :meth:`Fetcher.run`."""

    def __init__(
        self,
        plan: FetchPlan,
        queue: KVStoreQueue,
        options: FetcherOptions,
        clock: Clock,
        tell: Subscriber,
    ) -> None:
        self._namespace = namespace = run_namespace(plan.context.run_id)
        self._plan = plan
        self._queue = queue
        self._options = options
        self._clock = clock
        self._cut_short = False
        self._pauses = pauses = Pauses(namespace, clock, tell)
        breakers = Breakers(queue, namespace, options.breaker, tell)
        self._failures = Failures(queue, namespace, breakers=breakers, pauses=pauses, tell=tell)
        early = Early(queue, pauses)
        self._refill = Refill(queue, plan.target_queue_size, plan.concurrency, clock)
        self._feeder = Feeder(
            queue,
            name_locators(plan.recipe.bundle_locators),
            plan.context,
            refill=self._refill,
            failures=self._failures,
            breakers=breakers,
            pauses=pauses,
            early=early,
            timeout=options.locator_timeout,
            namespace=namespace,
            tell=tell,
        )
        self._worker = Worker(
            plan,
            namespace,
            timeout=options.request_timeout,
            breakers=breakers,
            failures=self._failures,
            pauses=pauses,
            early=early,
            clock=clock,
            tell=tell,
        )
        storage = getattr(plan.context.app_config, "storage", None)
        self._storage = storage if has_index(storage) else None
        self._exporter = (
            None if self._storage is None else Exporter(queue, self._storage, clock, pauses)
        )

    async def go(self, stop: Stop) -> FetchResult:
        birth = await self._within_grace(stop, self._begin)
        if birth is not None and not stop.is_asked:
            await self._work_off(birth, stop)
        try:
            with anyio.fail_after(self._patience(stop)):
                return await self._account(birth, stop)
        except TimeoutError:
            raise StoreUnavailable("the store did not answer while the run was ending") from None

    async def _begin(self) -> str:
        birth = await self._birth()
        if self._storage is not None:
            await self._storage.bind(birth)
        await self._feeder.register()
        return birth

    async def _work_off(self, birth: str, stop: Stop) -> None:
        async def has_more() -> bool:
            await self._check_birth(birth)
            return await self._feeder.revive()

        async with anyio.create_task_group() as beside:
            if self._exporter is not None:
                beside.start_soon(self._exporter.run)
            beside.start_soon(self._refill.run)
            await self._drain(stop)
            while not stop.is_asked and await self._within_grace(stop, has_more):
                await self._drain(stop)
            beside.cancel_scope.cancel()

    async def _within_grace(self, stop: Stop, work: Callable[[], Awaitable[T]]) -> T | None:
        """What it gave; ``None`` if it was not done when the grace after a stop was over."""
        done: T | None = None
        async with anyio.create_task_group() as watching:
            with anyio.CancelScope() as scope:
                watching.start_soon(self._stop_when_asked, stop, scope)
                done = await work()
            watching.cancel_scope.cancel()
        self._cut_short = scope.cancelled_caught
        return done

    def _patience(self, stop: Stop) -> float:
        return max(_GOODBYE, self._options.grace) if stop.is_asked else math.inf

    async def _account(self, birth: str | None, stop: Stop) -> FetchResult:
        lacking = None if birth is None else await self._end(birth, stop)
        result = FetchResult(
            processed_count=self._worker.processed,
            errors=list(self._failures.last),
            context=self._plan.context,
            stats=await self._queue.stats(),
            cut_short=self._cut_short,
        )
        if lacking is not None and result.is_finished:
            raise lacking
        return result

    async def _end(self, birth: str, stop: Stop) -> Exception | None:
        await self._check_birth(birth)
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._give_up_when_asked, stop)
            lacking = await self._leave_nothing()
            beside.cancel_scope.cancel()
        return lacking

    async def _leave_nothing(self) -> Exception | None:
        """What there was no room for, if nobody waits for it: it is done when the run goes on."""
        try:
            await self._refill.bring_back()
            if self._exporter is not None:
                await self._exporter.finish()
        except FULL as error:
            return error
        return None

    async def _birth(self) -> str:
        """What tells this run from one of the same name that was forgotten. All agree on it."""
        name = f"{self._plan.context.run_id}#{os.urandom(6).hex()}"
        await self._pauses.insist(lambda: self._queue.swap_checkpoint(BIRTH, None, name))
        return str(await self._queue.checkpoint(BIRTH))

    async def _check_birth(self, birth: str) -> None:
        if await self._queue.checkpoint(BIRTH) != birth:
            raise was_forgotten(self._namespace)

    async def _drain(self, stop: Stop) -> None:
        async with (
            anyio.create_task_group() as watching,
            self._queue.leases(until="drained") as stream,
        ):
            async with anyio.create_task_group() as workers:
                watching.start_soon(self._stop_when_asked, stop, workers.cancel_scope)
                for number in range(1, self._plan.concurrency + 1):
                    name = f"worker {number}"
                    workers.start_soon(self._work, stream, workers, stop, name=name)
            watching.cancel_scope.cancel()

    async def _work(self, stream: LeaseStream, group: TaskGroup, stop: Stop) -> None:
        while (lease := await self._next(stream)) is not None:
            if stop.is_asked:
                async with lease:
                    await self._pauses.insist(lease.give_back, needs_room=False)
                return
            name = locator_of(lease.item)
            if name is not None:
                self._feeder.take(lease, name, group)
                continue
            self._refill.worker_starts()
            try:
                async with lease:
                    await self._worker.process(lease)
            finally:
                self._refill.worker_ends()

    async def _next(self, stream: LeaseStream) -> Lease | None:
        """A store that is full to the last byte cannot even lease."""
        while True:
            if self._pauses.are_on:
                await self._pauses.pass_by()
            try:
                return await stream.next()
            except StoreFull as error:
                await self._pauses.wait(error)

    async def _stop_when_asked(self, stop: Stop, work: anyio.CancelScope) -> None:
        """Begin nothing new, let what is in flight end, and give back the rest."""
        await stop.wait()
        # Wakes those who wait for something to do.
        await self._queue.shutdown()
        await self._clock.sleep(self._options.grace)
        work.cancel()

    async def _give_up_when_asked(self, stop: Stop) -> None:
        """Who is to stop does not wait for room."""
        await stop.wait()
        self._pauses.give_up()


def check_plan(plan: FetchPlan) -> None:
    for name, most in (("concurrency", _MOST_WORKERS), ("target_queue_size", _LARGEST_TARGET)):
        value = getattr(plan, name)
        if not is_whole_number(value, 1, most):
            raise ValidationError(
                f"{name} must be a whole number from 1 up to {most}, not {shown(value)}"
            )
    run_namespace(plan.context.run_id)
    _check_recipe(plan.recipe)


def _check_recipe(recipe: Any) -> None:
    locators = getattr(recipe, "bundle_locators", None)
    if isinstance(locators, str | bytes) or not isinstance(locators, Sequence):
        raise ConfigurationError(f"a recipe has a list of locators, unlike {shown(recipe)}")
    for locator in locators:
        if not callable(getattr(locator, "get_next_urls", None)):
            raise ConfigurationError(f"a locator has get_next_urls(), unlike {shown(locator)}")
    if not callable(getattr(recipe.bundle_loader, "load", None)):
        raise ConfigurationError(f"a loader has load(), unlike {shown(recipe.bundle_loader)}")


def store_of(context: FetchRunContext) -> Any:
    store = getattr(context.app_config, "kv_store", None)
    if store is None:
        raise ConfigurationError("kv_store is required for persistent queue")
    return store


@asynccontextmanager
async def _left(queue: KVStoreQueue) -> AsyncIterator[None]:
    """However it ends, what is still held is given back.

    At the end of a run that failed nobody insists on that: the store may be what failed.
    """
    try:
        yield
    except BaseException:
        with anyio.move_on_after(_GOODBYE, shield=True), suppress(StoreError):
            await queue.close()
        raise
    # A store without room keeps what is given back as it was, and it will be found.
    with suppress(StoreFull):
        await queue.close()


@contextmanager
def single_cause() -> Iterator[None]:
    """One error, not a group: what went wrong first. The others are its echoes."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from error.__cause__


async def _close(loader: Any) -> None:
    if inspect.iscoroutinefunction(getattr(type(loader), "close", None)):
        with anyio.CancelScope(shield=True):
            await loader.close()
