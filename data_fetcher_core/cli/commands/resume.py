"""``data-fetcher resume`` and ``data-fetcher work``."""
# ruff: noqa: D301 - the backspace is a mark for click

from __future__ import annotations

from typing import Any

import click

from data_fetcher_core.cli import options
from data_fetcher_core.cli.asking import manner_of, named_options, speed_of
from data_fetcher_core.cli.exit_codes import EXPLAINED, ExitCode


@click.command(epilog=EXPLAINED)
@click.argument("run_id")
@options.speed(again=True)
@options.http(again=True)
@options.manner
@click.pass_context
def resume(context: click.Context, /, run_id: str, **_: Any) -> ExitCode:
    """Go on with a run.

    Everything it was begun with is kept in the store: the id is enough. Speed options that are
    given apply from now on; the others stay as they were.

    \b
      data-fetcher resume example.org-1b2c3d4e
      data-fetcher resume example.org-1b2c3d4e --concurrency 64 --delay 0.2
    """
    from data_fetcher_core.cli import beginning  # noqa: PLC0415
    from data_fetcher_core.cli.conducting import work_on  # noqa: PLC0415

    manner, given = manner_of(context.params), _given(context)
    return work_on(
        lambda store: beginning.resume(store, manner.place, run_id, given), manner, existing=True
    )


@click.command(epilog=EXPLAINED)
@click.argument("run_id")
@options.speed(again=True)
@options.http(again=True)
@options.manner
@click.pass_context
def work(context: click.Context, /, run_id: str, **_: Any) -> ExitCode:
    """Help with a run, from another process or another machine.

    It needs the id and the store. To work from several machines, the store is a Redis, and the
    pages go to a bucket or to a folder that all of them share. Processes may come and go as they
    like; all of them see when the run is finished.

    Options that are given apply to this process alone, but --per-host, --delay and --retries are
    the whole run's.

    \b
      data-fetcher work example.org-1b2c3d4e --store redis://queue.example.org/0
    """
    from data_fetcher_core.cli import beginning  # noqa: PLC0415
    from data_fetcher_core.cli.conducting import work_on  # noqa: PLC0415

    manner, given = manner_of(context.params), _given(context)
    return work_on(
        lambda store: beginning.join(store, manner.place, run_id, given), manner, existing=True
    )


def _given(context: click.Context) -> dict[str, Any]:
    speed = speed_of(context.params)
    return {name: speed[name] for name in named_options(context, speed)}
