"""``data-fetcher runs`` and ``data-fetcher status``."""
# ruff: noqa: D301 - the backspace is a mark for click

from __future__ import annotations

import click

from data_fetcher_core.cli import options
from data_fetcher_core.cli.exit_codes import EXPLAINED, ExitCode
from data_fetcher_core.cli.params import Count
from data_fetcher_core.cli.places import Place


@click.command(epilog=EXPLAINED)
@click.option(
    "--limit",
    type=Count(1, 100_000),
    default=50,
    metavar="N",
    help="How many at most, the newest first.  [default: 50]",
)
@options.looking
def runs(limit: int, place: Place, as_json: bool) -> ExitCode:
    """List the runs of a store, the newest first.

    \b
      data-fetcher runs
      data-fetcher runs --store redis://queue.example.org/0 --json
    """
    from data_fetcher_core.cli import run_report  # noqa: PLC0415
    from data_fetcher_core.cli.inspecting import newest_runs  # noqa: PLC0415
    from data_fetcher_core.cli.looking import ask_store, show_json  # noqa: PLC0415

    found = [] if place.is_missing else ask_store(place, lambda store: newest_runs(store, limit))
    if as_json:
        show_json([run_report.run_json(standing) for standing in found])
    elif not found:
        click.echo(f"there are no runs in {place}; begin with: data-fetcher crawl URL")
    else:
        click.echo("\n".join(run_report.runs_lines(found)))
    return ExitCode.FINISHED


@click.command(epilog=EXPLAINED)
@click.argument("run_id")
@options.looking
def status(run_id: str, place: Place, as_json: bool) -> ExitCode:
    """Show where a run stands, and when it may be done.

    It looks twice, a second apart.

    \b
      data-fetcher status example.org-1b2c3d4e
    """
    from data_fetcher_core.cli import run_report  # noqa: PLC0415
    from data_fetcher_core.cli.inspecting import look_twice  # noqa: PLC0415
    from data_fetcher_core.cli.looking import ask_store, show_json  # noqa: PLC0415

    look = ask_store(place, lambda store: look_twice(store, place, run_id))
    if as_json:
        show_json(run_report.status_json(look, place))
    else:
        click.echo("\n".join(run_report.status_lines(look, place)))
    return ExitCode.FINISHED
