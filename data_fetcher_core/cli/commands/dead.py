"""``data-fetcher dead``."""
# ruff: noqa: D301 - the backspace is a mark for click

from __future__ import annotations

import click

from data_fetcher_core.cli import options
from data_fetcher_core.cli.exit_codes import EXPLAINED, ExitCode
from data_fetcher_core.cli.params import Count, Seconds
from data_fetcher_core.cli.places import Place

_CENTURY = 100 * 365 * 86_400.0


@click.group(epilog=EXPLAINED)
def dead() -> None:
    """Requests that were given up: list, requeue, purge.

    \b
      data-fetcher dead list example.org-1b2c3d4e
      data-fetcher dead requeue example.org-1b2c3d4e --all
      data-fetcher dead purge example.org-1b2c3d4e
    """


@dead.command("list", epilog=EXPLAINED)
@click.argument("run_id")
@click.option(
    "--limit",
    type=Count(1, 10_000_000),
    default=50,
    metavar="N",
    help="How many at most, the oldest first.  [default: 50]",
)
@options.looking
def list_dead(run_id: str, limit: int, place: Place, as_json: bool) -> ExitCode:
    """List dead letters: what, why, and after how many attempts."""
    from data_fetcher_core.cli.burying import listed  # noqa: PLC0415
    from data_fetcher_core.cli.looking import ask_store, show_json  # noqa: PLC0415

    letters, total = ask_store(place, lambda store: listed(store, place, run_id, limit))
    if as_json:
        show_json({"run_id": run_id, "dead": total, "letters": [one.to_json() for one in letters]})
        return ExitCode.FINISHED
    for letter in letters:
        click.echo(f"{letter.id}  {letter.line()}")
    if total > len(letters):
        click.echo(f"… and {total - len(letters):,} more: --limit shows more")
    elif not letters:
        click.echo(f"the run {run_id} has no dead letters")
    return ExitCode.FINISHED


@dead.command(epilog=EXPLAINED)
@click.argument("run_id")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "every", is_flag=True, help="All of them.")
@options.looking
def requeue(
    run_id: str, ids: tuple[str, ...], every: bool, place: Place, as_json: bool
) -> ExitCode:
    """Make dead letters ready again; their history is kept."""
    from data_fetcher_core.cli.burying import requeued  # noqa: PLC0415
    from data_fetcher_core.cli.looking import ask_store, show_json  # noqa: PLC0415
    from data_fetcher_core.cli.places import command_line  # noqa: PLC0415

    if every == bool(ids):
        raise click.UsageError("give the ids of dead letters (`dead list` shows them), or --all")
    number, is_worked_on = ask_store(
        place, lambda store: requeued(store, place, run_id, None if every else ids)
    )
    if as_json:
        show_json({"run_id": run_id, "requeued": number})
    else:
        click.echo(f"{number:,} requeued" + ("" if every else f", of {len(ids)} that were named"))
        if number and not is_worked_on:
            click.echo(f"go on with: {command_line(place, 'resume', run_id)}")
    return ExitCode.FINISHED if every or number == len(set(ids)) else ExitCode.ERROR


@dead.command(epilog=EXPLAINED)
@click.argument("run_id")
@click.option(
    "--older-than",
    type=Seconds(_CENTURY),
    default=0.0,
    metavar="S",
    help="Only those that are dead for so long.  [default: all]",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options.looking
def purge(run_id: str, older_than: float, yes: bool, place: Place, as_json: bool) -> ExitCode:
    """Drop dead letters for good."""
    from data_fetcher_core.cli.burying import listed, purged  # noqa: PLC0415
    from data_fetcher_core.cli.looking import ask_store, show_json  # noqa: PLC0415

    if not yes:
        _, total = ask_store(place, lambda store: listed(store, place, run_id, 0))
        what = f"{total:,} dead letters" if not older_than else "old dead letters"
        click.confirm(f"Drop {what} of {run_id} for good?", abort=True, err=True)
    number = ask_store(place, lambda store: purged(store, place, run_id, older_than))
    if as_json:
        show_json({"run_id": run_id, "purged": number})
    else:
        click.echo(f"{number:,} dropped")
    return ExitCode.FINISHED
