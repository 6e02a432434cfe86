"""From what the demo was asked for to its exit code; what it needs is made and removed here."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import click
import orjson

from data_fetcher_core.cli.demo.account import Account
from data_fetcher_core.cli.demo.presenting import lines
from data_fetcher_core.cli.demo.site import Site
from data_fetcher_core.cli.demo.stage import Stage
from data_fetcher_core.cli.exit_codes import ExitCode
from data_fetcher_core.cli.folders import sqlite_url
from data_fetcher_core.cli.logs import warnings_unsaid
from data_fetcher_core.cli.opening import opened
from data_fetcher_core.cli.places import Place
from data_fetcher_core.fetcher.fetcher import single_cause

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the demo was asked for."""

    pages: int
    kills: int
    seed: int
    place: Place | None
    keep: bool
    as_json: bool


def perform(wishes: Wishes) -> ExitCode:
    return anyio.run(_perform, wishes)


async def _perform(wishes: Wishes) -> ExitCode:
    account: Account | None = None
    with (
        single_cause(),
        anyio.CancelScope() as scope,
        _cancelled_by_signals(scope),
        _folder(wishes.keep) as folder,
        warnings_unsaid(),
    ):
        account = await _performance(wishes, folder)
    if account is None:
        click.echo("Stopped. The crawl was ended, too.", err=True)
        return ExitCode.STOPPED
    return ExitCode.FINISHED if account.is_right else ExitCode.ERROR


async def _performance(wishes: Wishes, folder: Path) -> Account:
    stage = _stage(wishes, folder)
    async with opened(stage.place):
        pass  # What is wrong with the store is told at once, and once.
    try:
        account = await stage.perform()
    finally:
        if wishes.place is not None and not wishes.keep:
            await stage.forget()
    if wishes.keep:
        stage.say(f"\nKept: run {stage.run_id} in {stage.place}, its pages in {stage.out}")
    stage.say("")
    for line in lines(account):
        stage.say(line)
    if wishes.as_json:
        click.echo(orjson.dumps(account.to_json(), option=orjson.OPT_INDENT_2))
    return account


def _stage(wishes: Wishes, folder: Path) -> Stage:
    return Stage(
        site=Site(wishes.pages, wishes.seed),
        place=wishes.place or Place(sqlite_url(folder / "runs.db")),
        folder=folder,
        kills_wanted=wishes.kills,
        say=partial(click.echo, err=wishes.as_json),
        shows_crawl=sys.stderr is not None and sys.stderr.isatty(),
    )


@contextmanager
def _folder(keep: bool) -> Iterator[Path]:
    prefix = "data-fetcher-demo-"
    if keep:
        yield Path(tempfile.mkdtemp(prefix=prefix))
        return
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def _cancelled_by_signals(scope: anyio.CancelScope) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, scope.cancel)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
