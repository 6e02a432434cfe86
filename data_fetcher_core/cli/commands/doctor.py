"""``data-fetcher doctor``."""
# ruff: noqa: D301 - the backspace is a mark for click

from __future__ import annotations

import click

from data_fetcher_core.cli import options
from data_fetcher_core.cli.exit_codes import EXPLAINED, ExitCode
from data_fetcher_core.cli.places import Place


@click.command(epilog=EXPLAINED)
@click.argument("run_id", required=False)
@options.looking
def doctor(run_id: str | None, place: Place, as_json: bool) -> ExitCode:
    """Check versions, folders, the store, and the counts of its runs.

    Counts that are wrong are mended. It ends with 1 if something is wrong, and with 4 if the
    store cannot be used.

    \b
      data-fetcher doctor
      data-fetcher doctor --store redis://queue.example.org/0
    """
    from dataclasses import asdict  # noqa: PLC0415

    import anyio  # noqa: PLC0415

    from data_fetcher_core.cli.doctor.examining import examine  # noqa: PLC0415
    from data_fetcher_core.cli.logs import warnings_unsaid  # noqa: PLC0415
    from data_fetcher_core.cli.looking import show_json  # noqa: PLC0415
    from data_fetcher_core.cli.table import table  # noqa: PLC0415

    with warnings_unsaid():
        found, code = anyio.run(examine, place, run_id)
    if as_json:
        show_json({"exit_code": int(code), "findings": [asdict(finding) for finding in found]})
    else:
        rows = [(finding.health.value, finding.subject, finding.detail) for finding in found]
        click.echo("\n".join(table(("", "WHAT", "HOW IT IS"), rows)))
        click.echo("all is well" if code == ExitCode.FINISHED else "something is wrong: see above")
    return code
