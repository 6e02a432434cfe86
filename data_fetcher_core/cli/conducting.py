"""Works on a run from beginning to end: the one place where the command line meets the fetcher."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import anyio
import click
import orjson

from data_fetcher_core.cli.asking import Manner
from data_fetcher_core.cli.beginning import Run, note_locators
from data_fetcher_core.cli.composing import Parts, compose
from data_fetcher_core.cli.exit_codes import ExitCode, code_of
from data_fetcher_core.cli.failing import Told, error_lines
from data_fetcher_core.cli.finishing import (
    have_more,
    is_finished,
    left_in,
    limit_reached,
    locators_of,
)
from data_fetcher_core.cli.listing import check_list, passed_over
from data_fetcher_core.cli.opening import opened
from data_fetcher_core.cli.output import check_output
from data_fetcher_core.cli.places import command_line
from data_fetcher_core.cli.presence import be_present
from data_fetcher_core.cli.registry import run_queue
from data_fetcher_core.cli.settings import Settings
from data_fetcher_core.cli.signals import Interruption
from data_fetcher_core.cli.summary import Summary, gone_lines, opening_line, stopping_line
from data_fetcher_core.cli.view import View
from data_fetcher_core.cli.voice import Voice
from data_fetcher_core.core import FetchPlan, QueueStats
from data_fetcher_core.errors import DataFetcherError, StoreError, StoreLost
from data_fetcher_core.events import Event, Fetched, NotFetched
from data_fetcher_core.fetcher import Fetcher, FetchResult
from data_fetcher_core.fetcher.fetcher import single_cause
from data_fetcher_core.fetcher.turns import name_locators
from data_fetcher_core.kv_store import KeyValueStore
from data_fetcher_core.queue import KVStoreQueue

Enter = Callable[[KeyValueStore], Awaitable[Run]]
_GLANCE = 0.5


def work_on(enter: Enter, manner: Manner, *, existing: bool = False) -> ExitCode:
    """Enter a run and work on it until it is finished or stopped; the command's exit code.

    ``existing`` runs are not looked for in a store that was never used.
    """

    async def conduct() -> ExitCode:
        return await Conductor(manner, existing=existing).conduct(enter)

    return anyio.run(conduct, backend_options={"use_uvloop": manner.on_uvloop})


class Conductor:
    """One command that works on a run."""

    def __init__(self, manner: Manner, *, existing: bool) -> None:
        self._manner = manner
        self._existing = existing
        self._interruption = Interruption()
        self._voice = Voice()
        self._summary: Summary | None = None
        self._seen: Counter[type] = Counter()
        self._begun = time.monotonic()

    async def conduct(self, enter: Enter) -> ExitCode:
        self._interruption.on_leave = self._tell
        try:
            with single_cause():
                await self._beside_signals(enter)
        except DataFetcherError as error:
            if not self._voice.has_view:
                raise
            self._tell_error(error)
            raise Told(error) from error
        else:
            return self._tell()
        finally:
            self._voice.close()

    async def _beside_signals(self, enter: Enter) -> None:
        """What is opened is closed outside the scope that a second signal cancels."""
        async with anyio.create_task_group() as beside:
            await beside.start(self._interruption.listen)
            async with opened(self._manner.place, existing=self._existing) as store:
                with self._interruption.scope as scope:
                    await self._attend(await enter(store), store)
                if scope.cancelled_caught and self._summary is not None:
                    await self._look_back(store, self._summary)
            beside.cancel_scope.cancel()

    async def _attend(self, run: Run, store: KeyValueStore) -> None:
        parts = compose(
            run.run_id, run.settings, store, grace=self._manner.grace, recipe=run.recipe
        )
        out = run.settings.identity["out"]
        summary = self._summary = Summary(run.run_id, self._manner.place, out, is_stopped=True)
        view = self._voice.open_view(self._manner.view, f"{run.settings.command} {run.title}")
        try:
            async with run_queue(store, run.run_id) as queue:
                before = await queue.stats()
                settings = await self._look_over(run, parts, queue, before)
                locators = await locators_of(queue, settings.locators)
                was_finished = is_finished(locators, before, settings)
                if not was_finished:
                    view.say(opening_line(run.run_id, before, self._manner.place, out))
                fetcher = Fetcher(parts.options, subscriber=self._noting(view))
                result = await self._perform(fetcher, parts.plan, queue, view)
                summary = replace(summary, was_finished=was_finished)
                self._summary = await self._summed_up(summary, result, queue, settings)
        finally:
            with anyio.CancelScope(shield=True):
                await parts.storage.close()

    async def _look_over(
        self, run: Run, parts: Parts, queue: KVStoreQueue, before: QueueStats
    ) -> Settings:
        """That all is there which the run needs to go on; its settings as they are now."""
        await check_output(
            queue,
            parts.storage,
            run.settings.identity["out"],
            has_pages=before.completed > 0,
            is_joined=run.is_joined,
        )
        names = tuple(name_locators(parts.plan.recipe.bundle_locators))
        settings = await note_locators(queue, run.settings, names)
        await check_list(queue, settings)
        return settings

    async def _perform(
        self, fetcher: Fetcher, plan: FetchPlan, queue: KVStoreQueue, view: View
    ) -> FetchResult:
        self._begun = time.monotonic()
        async with anyio.create_task_group() as beside:
            beside.start_soon(view.watch, queue.stats)
            beside.start_soon(be_present, plan.context.app_config.kv_store, plan.context.run_id)
            self._interruption.on_stop = lambda: self._announce_stop(queue)
            result = await self._until_finished(fetcher, plan)
            self._interruption.on_stop = None
            beside.cancel_scope.cancel()
        return result

    async def _summed_up(
        self, summary: Summary, result: FetchResult, queue: KVStoreQueue, settings: Settings
    ) -> Summary:
        left = left_in(result.stats)
        locators = await locators_of(queue, settings.locators)
        more = have_more(locators, result.stats, settings)
        return replace(
            summary,
            stats=result.stats,
            fetched=self._seen[Fetched],
            skipped=self._seen[NotFetched],
            seconds=time.monotonic() - self._begun,
            errors=tuple(result.errors),
            is_stopped=bool(left or (more and self._interruption.is_asked)),
            have_more=() if left else more,
            limit=limit_reached(result.stats, settings),
            passed_over=await passed_over(queue, settings),
        )

    async def _until_finished(self, fetcher: Fetcher, plan: FetchPlan) -> FetchResult:
        """Once is enough, unless somebody requeues dead letters just as it ends."""
        while True:
            result = await fetcher.run(plan, self._interruption.stop)
            if not left_in(result.stats) or self._interruption.is_asked:
                return result

    def _noting(self, view: View) -> Callable[[Event], None]:
        def note(event: Event) -> None:
            self._seen[type(event)] += 1
            view(event)

        return note

    async def _announce_stop(self, queue: KVStoreQueue) -> None:
        in_flight = None
        with anyio.move_on_after(_GLANCE), suppress(StoreError):
            in_flight = (await queue.stats()).leased
        self._voice.say(stopping_line(in_flight, self._manner.grace), problem=True)

    async def _look_back(self, store: KeyValueStore, summary: Summary) -> None:
        """Where the run stands after it was stopped at once."""
        with anyio.move_on_after(_GLANCE), suppress(StoreError):
            async with run_queue(store, summary.run_id) as queue:
                self._summary = replace(summary, stats=await queue.stats())

    def _tell(self) -> ExitCode:
        if self._summary is None:
            self._voice.say("stopped before it had begun", problem=True)
            return ExitCode.STOPPED
        code = self._summary.exit_code
        for line in self._summary.lines():
            self._voice.say(line, problem=code != ExitCode.FINISHED)
        self._voice.close()
        if self._manner.as_json:
            click.echo(orjson.dumps(self._summary.to_json()).decode())
        return code

    def _tell_error(self, error: DataFetcherError) -> None:
        """What does not fit the run fits it no better the next time."""
        if self._summary is not None and isinstance(error, StoreLost):
            for note in gone_lines(self._summary.run_id, self._summary.out):
                error.add_note(note)
        elif self._summary is not None and code_of(error) is not ExitCode.USAGE:
            resume = command_line(self._manner.place, "resume", self._summary.run_id)
            error.add_note(f"resume with: {resume}")
        for line in error_lines(error):
            self._voice.say(line, problem=True)
