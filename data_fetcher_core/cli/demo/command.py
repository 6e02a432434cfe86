"""``data-fetcher demo``."""

from __future__ import annotations

from typing import Any

import click

from data_fetcher_core.cli.exit_codes import EXPLAINED
from data_fetcher_core.cli.params import read_store
from data_fetcher_core.cli.places import Place

# A page that was in flight at five deaths would be taken for the cause of them.
_MOST_KILLS = 4


def _read_store(
    context: click.Context, parameter: click.Parameter, url: str | None
) -> Place | None:
    return None if url is None else read_store(context, parameter, url)


@click.command(epilog=EXPLAINED)
@click.option(
    "--pages",
    type=click.IntRange(1, 100_000),
    default=600,
    show_default=True,
    help="How many pages the site has.",
)
@click.option(
    "--kills",
    type=click.IntRange(0, _MOST_KILLS),
    default=1,
    show_default=True,
    help="How often the crawl is killed.",
)
@click.option("--seed", type=int, default=0, help="Another number, another site.")
@click.option(
    "--store",
    "place",
    metavar="URL",
    callback=_read_store,
    help="Where the run is kept: sqlite:///runs.db or redis://host:6379/0.  "
    "[default: SQLite in a temporary folder]",
)
@click.option("--keep", is_flag=True, help="Leave the run and its pages behind, and say where.")
@click.option("--json", "as_json", is_flag=True, help="The account in JSON, on stdout.")
def demo(**wishes: Any) -> int:
    """Crawl a small site, kill the crawl half-way, and count what is lost.

    The site is made up and served on this computer; no network is needed. The crawl is the
    ordinary `data-fetcher crawl` in a process of its own. It is killed with SIGKILL, and the same
    command is started again.

    At the end every page is accounted for, by three witnesses: the server, which counted what it
    was asked for; the index and the files, whose digests are compared with the site's; and the
    store. No page may be lost, and none that was finished may be fetched again. Pages in flight
    at the kill are fetched again, once.
    """
    from data_fetcher_core.cli.demo.performing import Wishes, perform  # noqa: PLC0415 - it is heavy

    return perform(Wishes(**wishes))
