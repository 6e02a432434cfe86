"""``data-fetcher fetch``."""
# ruff: noqa: D301 - the backspace is a mark for click

from __future__ import annotations

from typing import Any

import click

from data_fetcher_core.cli import options
from data_fetcher_core.cli.exit_codes import EXPLAINED, ExitCode


@click.command(epilog=EXPLAINED)
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)
)
@options.identity
@options.ignore_robots
@options.speed()
@options.http()
@options.manner
@click.pass_context
def fetch(context: click.Context, /, file: str, **_: Any) -> ExitCode:
    """Fetch what a file lists, one URL a line; - is stdin.

    Empty lines and those that begin with # are passed over. The file may be compressed (.gz).
    Links are not followed; redirects are. What comes from stdin is read to its end and kept, so
    that the run can be resumed without it.

    \b
      data-fetcher fetch urls.txt --out pages
      cut -f2 table.tsv | data-fetcher fetch -
    """
    from data_fetcher_core.cli.listing import read_list  # noqa: PLC0415
    from data_fetcher_core.cli.naming import id_from_list  # noqa: PLC0415
    from data_fetcher_core.cli.starting import start  # noqa: PLC0415

    urls = read_list(file)
    # Which content it is makes the run; where the file lies may change.
    return start(
        context,
        {"sha256": urls.digest},
        own_id=id_from_list(urls.stem, urls.digest),
        title=urls.stem if file == "-" else str(urls.path),
        speed={"file": str(urls.path)},
    )
