"""The command line, ``data-fetcher``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from data_fetcher_core.cli.demo.command import demo
from data_fetcher_core.cli.exit_codes import EXPLAINED, ExitCode
from data_fetcher_core.errors import DataFetcherError, StoreError


@click.group(
    epilog=EXPLAINED,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="data-fetcher-core", message="data-fetcher %(version)s")
@click.pass_context
def data_fetcher(context: click.Context) -> None:
    """A crawl you can kill.

    Requests live in a store (SQLite or Redis), each in exactly one place, and move by atomic
    steps. Whatever process dies, starting it again goes on where it stopped.

    Begin with `data-fetcher demo`: it needs no server, no network and no settings.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(ExitCode.USAGE)


data_fetcher.add_command(demo)


def main() -> NoReturn:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command; how it ended, as an exit code."""
    try:
        ended = data_fetcher.main(list(arguments), prog_name="data-fetcher", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.STOPPED
    except DataFetcherError as error:
        click.echo(f"Error: {error}", err=True)
        return ExitCode.STORE if isinstance(error, StoreError) else ExitCode.ERROR
    return int(ended)
