"""``data-fetcher forget``."""
# ruff: noqa: D301 - the backspace is a mark for click

from __future__ import annotations

import click

from data_fetcher_core.cli import options
from data_fetcher_core.cli.exit_codes import EXPLAINED, ExitCode
from data_fetcher_core.cli.places import Place


@click.command(epilog=EXPLAINED)
@click.argument("run_id")
@click.option("--pages", is_flag=True, help="Delete the pages of the run, too.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options.looking
def forget(run_id: str, pages: bool, yes: bool, place: Place, as_json: bool) -> ExitCode:
    """Forget a run: its requests, dead letters and settings. It may then begin anew.

    Its pages stay where they are, unless --pages is given.

    \b
      data-fetcher forget example.org-1b2c3d4e
      data-fetcher forget example.org-1b2c3d4e --pages --yes
    """
    from data_fetcher_core.cli import forgetting  # noqa: PLC0415
    from data_fetcher_core.cli.looking import ask_store, show_json  # noqa: PLC0415

    if not yes:
        standing = ask_store(place, lambda store: forgetting.looked_up(store, place, run_id))
        click.confirm(forgetting.question(standing, pages=pages), abort=True, err=True)
    out = ask_store(place, lambda store: forgetting.forget(store, place, run_id, pages=pages))
    if as_json:
        show_json({"run_id": run_id, "forgotten": True, "pages_deleted": pages, "out": out})
        return ExitCode.FINISHED
    click.echo(f"forgotten: {run_id}")
    if out is not None:
        click.echo(f"its pages {'were deleted from' if pages else 'are still in'} {out}")
    return ExitCode.FINISHED
