"""``data-fetcher crawl``."""
# ruff: noqa: D301 - the backspace is a mark for click

from __future__ import annotations

from typing import Any

import click

from data_fetcher_core.cli import options
from data_fetcher_core.cli.exit_codes import EXPLAINED, ExitCode
from data_fetcher_core.cli.params import Count


@click.command(epilog=EXPLAINED)
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@options.identity
@click.option(
    "--max-depth",
    type=Count(0, 2**31 - 1),
    metavar="N",
    help="Follow links so far from a start URL; 0 for these alone.  [default: no limit]",
)
@options.patterns
@options.ignore_robots
@options.speed()
@options.http()
@options.manner
@click.pass_context
def crawl(context: click.Context, /, urls: tuple[str, ...], **_: Any) -> ExitCode:
    """Crawl a site, from the start URLs along its links.

    The crawl stays at the scheme, host and port of its start URLs. It can be killed at any
    moment, in any way: type the same command again, and it goes on where it was.

    \b
      data-fetcher crawl https://example.org/
      data-fetcher crawl https://example.org/ --max-pages 1000 --delay 0.5
      data-fetcher crawl https://example.org/docs/ --include /docs/ --out pages

    What makes the run what it is (start URLs, scope, --out) cannot be changed once it has begun.
    The speed options can: give other ones, and they apply from then on.
    """
    from data_fetcher_core.cli.naming import id_from_urls, public  # noqa: PLC0415
    from data_fetcher_core.cli.starting import start  # noqa: PLC0415
    from data_fetcher_core.recipes.web_urls import configured_urls  # noqa: PLC0415

    found = configured_urls(urls, "start URL")
    identity = {
        "start_urls": sorted({str(url) for url in found}),
        "include": list(context.params["include"]),
        "exclude": list(context.params["exclude"]),
        "max_depth": context.params["max_depth"],
    }
    title = ", ".join(sorted({str(public(url)) for url in found}))
    return start(context, identity, own_id=id_from_urls("crawl", found), title=title)
