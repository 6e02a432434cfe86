"""``data-fetcher api``."""
# ruff: noqa: D301 - the backspace is a mark for click

from __future__ import annotations

from typing import Any

import click

from data_fetcher_core.cli import options
from data_fetcher_core.cli.exit_codes import EXPLAINED, ExitCode
from data_fetcher_core.cli.params import Count


def _path(flag: str, text: str) -> options.Decorator:
    return click.option(flag, metavar="PATH", help=text)


_paging = options.together(
    _path("--cursor-path", "Where an answer has the cursor of the next page, or its URL."),
    click.option("--cursor-param", metavar="NAME", help="What the cursor is sent as."),
    click.option("--page-param", metavar="NAME", help="What the number of a page is sent as."),
    click.option(
        "--first-page",
        type=Count(0, 2**31 - 1),
        default=1,
        metavar="N",
        help="The number of the first page.  [default: 1]",
    ),
    _path("--last-page-path", "Where an answer has the number of the last page."),
    _path("--items-path", "Where an answer has the list of items."),
    _path("--item-url-path", "Where an item has a URL that is to be fetched, too."),
)


@click.command(epilog=EXPLAINED)
@click.argument("url")
@_paging
@options.identity
@options.ignore_robots
@options.speed()
@options.http()
@options.manner
@click.pass_context
def api(context: click.Context, /, url: str, **_: Any) -> ExitCode:
    """Fetch a JSON API, page by page.

    The next page is told by a cursor in the answer, by counting, or, if neither is asked for, by
    the Link header. Paths into an answer are dotted: meta.next.

    \b
      data-fetcher api https://example.org/v1/items
      data-fetcher api https://example.org/v1/items --cursor-path next --cursor-param after
      data-fetcher api https://example.org/v1/items --page-param page --items-path items
    """
    from data_fetcher_core.cli.composing import PAGING  # noqa: PLC0415
    from data_fetcher_core.cli.naming import id_from_urls, public  # noqa: PLC0415
    from data_fetcher_core.cli.starting import start  # noqa: PLC0415
    from data_fetcher_core.recipes.web_urls import configured_urls  # noqa: PLC0415

    (found,) = configured_urls(url, "API URL")
    identity = {"url": str(found), **{name: context.params[name] for name in PAGING}}
    return start(context, identity, own_id=id_from_urls("api", [found]), title=str(public(found)))
