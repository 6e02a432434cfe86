"""``data-fetcher sitemap``."""
# ruff: noqa: D301 - the backspace is a mark for click

from __future__ import annotations

from typing import Any

import click

from data_fetcher_core.cli import options
from data_fetcher_core.cli.exit_codes import EXPLAINED, ExitCode


@click.command(epilog=EXPLAINED)
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@options.identity
@options.patterns
@options.ignore_robots
@options.speed()
@options.http()
@options.manner
@click.pass_context
def sitemap(context: click.Context, /, urls: tuple[str, ...], **_: Any) -> ExitCode:
    """Fetch what sitemaps list.

    A sitemap may list other sitemaps, may be compressed, and may be a plain list of URLs. Links
    are not followed.

    \b
      data-fetcher sitemap https://example.org/sitemap.xml
      data-fetcher sitemap https://example.org/sitemap.xml --include /blog/
    """
    from data_fetcher_core.cli.naming import id_from_urls, public  # noqa: PLC0415
    from data_fetcher_core.cli.starting import start  # noqa: PLC0415
    from data_fetcher_core.recipes.web_urls import configured_urls  # noqa: PLC0415

    found = configured_urls(urls, "sitemap URL")
    identity = {
        "urls": sorted({str(url) for url in found}),
        "include": list(context.params["include"]),
        "exclude": list(context.params["exclude"]),
    }
    title = ", ".join(sorted({str(public(url)) for url in found}))
    return start(context, identity, own_id=id_from_urls("sitemap", found), title=title)
