"""``data-fetcher run``."""
# ruff: noqa: D301 - the backspace is a mark for click

from __future__ import annotations

from typing import Any

import click

from data_fetcher_core.cli import options
from data_fetcher_core.cli.exit_codes import EXPLAINED, ExitCode


@click.command(epilog=EXPLAINED)
@click.argument("recipe", metavar="FILE.py[:NAME]|MODULE[:NAME]")
@options.identity
@options.speed()
@options.manner
@click.pass_context
def run(context: click.Context, /, recipe: str, **_: Any) -> ExitCode:
    """Run a recipe of your own.

    A recipe is a FetcherRecipe: locators that say what to ask for, and a loader that gets it. NAME
    is that of the recipe, or of a function that returns one; it is `recipe` if left out.

    \b
      data-fetcher run prices.py
      data-fetcher run prices.py:weekly --concurrency 4
      data-fetcher run shop.recipes:weekly --out s3://bucket/prices

    The recipe may be mended between two calls: what is done stays done.
    """
    from data_fetcher_core.cli.naming import id_from_recipe  # noqa: PLC0415
    from data_fetcher_core.cli.starting import start  # noqa: PLC0415
    from data_fetcher_core.cli.targets import absolute_target  # noqa: PLC0415
    from data_fetcher_core.recipes import load_recipe  # noqa: PLC0415

    target = absolute_target(recipe)
    loaded = load_recipe(target)
    return start(
        context,
        {"recipe": target},
        own_id=id_from_recipe(loaded.recipe_id, target),
        title=target,
        recipe=loaded,
    )
