"""What all commands that begin a run have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from data_fetcher_core.cli.asking import manner_of, named_options, speed_of
from data_fetcher_core.cli.exit_codes import ExitCode
from data_fetcher_core.cli.naming import checked_run_id
from data_fetcher_core.cli.output import absolute_out
from data_fetcher_core.cli.settings import Settings
from data_fetcher_core.core import FetcherRecipe


def start(
    context: click.Context,
    identity: Mapping[str, Any],
    *,
    own_id: str,
    title: str,
    speed: Mapping[str, Any] | None = None,
    recipe: FetcherRecipe | None = None,
) -> ExitCode:
    """Begin the run, or go on with it; ``own_id`` is its id unless one was given."""
    # Only now: these bring in all that a run needs, which those who read the help do not.
    from data_fetcher_core.cli.beginning import begin  # noqa: PLC0415
    from data_fetcher_core.cli.composing import checked  # noqa: PLC0415
    from data_fetcher_core.cli.conducting import work_on  # noqa: PLC0415
    from data_fetcher_core.cli.private_hosts import check_hosts  # noqa: PLC0415

    options = context.params
    given_id = options["run_id"]
    run_id = own_id if given_id is None else checked_run_id(given_id)
    manner = manner_of(options)
    named = named_options(context, speed_of(options)) | frozenset(speed or {})
    asked = checked(_settings(context, identity, speed or {}), recipe)
    if manner.place.is_missing:  # Else a run of before may say that it is allowed.
        check_hosts(asked)
    return work_on(
        lambda store: begin(
            store, manner.place, run_id, asked, named=named, title=title, recipe=recipe
        ),
        manner,
    )


def _settings(
    context: click.Context, identity: Mapping[str, Any], speed: Mapping[str, Any]
) -> Settings:
    options = context.params
    shared: dict[str, Any] = {
        "max_pages": options["max_pages"],
        "out": absolute_out(options["out"]),
    }
    if "ignore_robots" in options:
        shared["ignore_robots"] = options["ignore_robots"]
    return Settings(
        str(context.command.name), {**identity, **shared}, {**speed_of(options), **speed}
    )
