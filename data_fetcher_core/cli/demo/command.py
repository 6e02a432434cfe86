"""``data-fetcher demo``."""

from __future__ import annotations

import asyncio
import secrets
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import click

from data_fetcher_core.cli.demo.account import Account
from data_fetcher_core.cli.demo.site import Site
from data_fetcher_core.cli.demo.stage import Stage
from data_fetcher_core.cli.exit_codes import EXPLAINED, ExitCode
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.kv_store.memory import MemoryStore

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOWN_LOST = 10


def _read_store(_: click.Context, __: click.Parameter, url: str | None) -> str | None:
    if url is None:
        return None
    if "://" not in url:
        raise click.BadParameter("it is no URL: write sqlite:///runs.db or redis://host:6379/0")
    try:
        store = create_kv_store(url)
    except ConfigurationError as error:
        raise click.BadParameter(str(error)) from None
    if isinstance(store, MemoryStore):
        raise click.BadParameter("memory ends with its process, and this demo kills it: use SQLite")
    return url


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the demo was asked for."""

    requests: int
    kills: int
    store: str | None
    keep: bool


@click.command(epilog=EXPLAINED)
@click.option(
    "--requests",
    type=click.IntRange(1, 1_000_000),
    default=2000,
    show_default=True,
    help="How many pages the pretend site has.",
)
@click.option(
    "--kills",
    type=click.IntRange(0, 100),
    default=3,
    show_default=True,
    help="How often the worker is killed.",
)
@click.option(
    "--store",
    metavar="URL",
    callback=_read_store,
    help="Where the queue lives: sqlite:///runs.db or redis://host:6379/0. "
    "[default: SQLite in a temporary folder]",
)
@click.option("--keep", is_flag=True, help="Leave the run and its files behind, and say where.")
def demo(requests: int, kills: int, store: str | None, keep: bool) -> int:
    """Kill a crawl again and again, and count what is lost.

    A worker process crawls a pretend site (nothing is downloaded). It is killed with SIGKILL at
    moments drawn by chance, and started again by the same command. A page is completed in one
    step with the links found on it, and no page is taken in twice.

    At the end every page is accounted for: what the site has, against what the store says was
    completed, against a plain file in which each worker wrote down what it began. The last line
    says how many were lost. Pages that were in flight at a kill are begun twice; they are counted,
    and completed once.
    """
    return anyio.run(_perform, Wishes(requests, kills, store, keep))


async def _perform(wishes: Wishes) -> ExitCode:
    account: Account | None = None
    with (
        _folder(wishes.keep) as folder,
        anyio.CancelScope() as scope,
        _cancelled_by_signals(scope),
    ):
        stage = Stage(
            store=wishes.store or f"sqlite:///{folder / 'queue.db'}",
            run_id=f"demo-{secrets.token_hex(4)}",
            site=Site(wishes.requests),
            kills_wanted=wishes.kills,
            folder=folder,
            forget=wishes.store is not None and not wishes.keep,
        )
        if wishes.keep:
            stage.say(f"Kept: run {stage.run_id!r}, and its ledger in {folder}")
        account = await stage.perform()
        _present(stage, account)
    if account is None:
        click.echo("Stopped. The worker was ended.", err=True)
        return ExitCode.STOPPED
    return ExitCode.FINISHED if account.is_clean else ExitCode.ERROR


@contextmanager
def _folder(keep: bool) -> Iterator[Path]:
    prefix = "data-fetcher-demo-"
    if keep:
        yield Path(tempfile.mkdtemp(prefix=prefix))
        return
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
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


def _present(stage: Stage, account: Account) -> None:
    stage.say("")
    for name, figure, remark in account.rows():
        stage.say(f"  {name:<16}{figure:>8}  {remark}".rstrip())
    for url in sorted(account.lost)[:_SHOWN_LOST]:
        stage.say(f"  LOST            {url}")
    stage.say(f"lost {len(account.lost)}")
