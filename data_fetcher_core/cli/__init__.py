"""The command line, ``data-fetcher``."""
# ruff: noqa: D301 - the backspace is a mark for click

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import click

from data_fetcher_core.cli.exit_codes import EXPLAINED, ExitCode, code_of
from data_fetcher_core.cli.failing import Told, error_lines, error_trace
from data_fetcher_core.cli.lazy import LazyGroup
from data_fetcher_core.cli.view.showable import without_credentials
from data_fetcher_core.errors import DataFetcherError


@click.group(
    cls=LazyGroup,
    epilog=EXPLAINED,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="data-fetcher-core", message="data-fetcher %(version)s")
@click.pass_context
def data_fetcher(context: click.Context) -> None:
    """A crawl you can kill.

    Kill it in any way you like, type the same command again, and it goes on as if nothing had
    happened: no page is lost, and none that was finished is fetched again.

    \b
      data-fetcher demo                            see it survive; needs no network
      data-fetcher crawl https://example.org/      crawl a site
      data-fetcher runs                            what there is

    Requests are kept in a store, SQLite or Redis; pages in a folder or a bucket.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(ExitCode.USAGE)


def main() -> NoReturn:
    code = run(sys.argv[1:])
    sys.exit(code if _flushed() else ExitCode.ERROR)


def run(arguments: Sequence[str]) -> int:
    """Run a command; how it ended, as an exit code."""
    try:
        return _run(list(arguments))
    except BrokenPipeError:
        return ExitCode.ERROR
    except DataFetcherError as error:
        return _fail(error, code_of(error), is_told=False, debug="--debug" in arguments)
    except Told as told:
        return _fail(told.error, told.exit_code, is_told=True, debug="--debug" in arguments)


def _run(arguments: list[str]) -> int:
    try:
        ended = data_fetcher.main(arguments, prog_name="data-fetcher", standalone_mode=False)
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return ExitCode.STOPPED
    return int(ended or ExitCode.FINISHED)


def _show(error: click.ClickException) -> None:
    """What was typed may hold a password, and click repeats it."""
    text = io.StringIO()
    error.show(text)
    click.echo("\n".join(map(without_credentials, text.getvalue().splitlines())), err=True)


def _fail(error: DataFetcherError, code: ExitCode, *, is_told: bool, debug: bool) -> ExitCode:
    if debug:
        click.echo(error_trace(error), err=True, nl=False)
    elif not is_told:
        click.echo("\n".join(error_lines(error)), err=True)
    return code


def _flushed() -> bool:
    """Whether all that was written has left; who reads it may have gone."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Or the interpreter would complain about it on its way out.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True
