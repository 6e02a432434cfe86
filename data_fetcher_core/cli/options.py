"""The options that commands share, each written once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, Protocol, TypeVar

import click

from data_fetcher_core.cli.params import (
    Count,
    Header,
    Pattern,
    Seconds,
    Size,
    UserAgent,
    read_store,
)
from data_fetcher_core.cli.view import KINDS

F = TypeVar("F", bound=Callable[..., Any])

_DAY = 86_400.0
_MOST = 10_000


class Decorator(Protocol):
    """Gives a command more options."""

    def __call__(self, function: F, /) -> F: ...


def together(*decorators: Decorator) -> Decorator:
    """One decorator that shows its options in this order."""

    def decorate(function: F, /) -> F:
        return reduce(lambda done, decorator: decorator(done), reversed(decorators), function)

    return decorate


store = click.option(
    "--store",
    "place",
    metavar="URL",
    envvar="DATA_FETCHER_STORE",
    show_envvar=True,
    callback=read_store,
    help="Where runs are kept: sqlite:///runs.db, redis://host:6379/0, redis+cluster://a,b,c or "
    "redis+sentinel://a,b,c/mymaster.  "
    "[default: SQLite in your data folder]",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Answer in JSON, on stdout.")
debug = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show where in the program an error arose."
)
looking = together(store, as_json, debug)

identity = together(
    click.option(
        "--run-id",
        metavar="ID",
        help="The name of the run.  [default: made from what it is about, and printed]",
    ),
    click.option(
        "--out",
        metavar="DIR|s3://…",
        help="Where the pages and index.jsonl go.  [default: a folder in your data folder]",
    ),
    click.option(
        "--max-pages",
        type=Count(1, 2**31 - 2),
        metavar="N",
        help="Make no more requests than this.  [default: no limit]",
    ),
)
ignore_robots = click.option(
    "--ignore-robots", is_flag=True, help="Do not ask for robots.txt, and do not obey it."
)
patterns = together(
    click.option(
        "--include",
        type=Pattern(),
        metavar="RE",
        multiple=True,
        help="Only URLs in which this regular expression is found. May be repeated: any will do.",
    ),
    click.option(
        "--exclude",
        type=Pattern(),
        metavar="RE",
        multiple=True,
        help="No URLs in which this regular expression is found. May be repeated.",
    ),
)


def speed(*, again: bool = False) -> Decorator:
    """How fast and how politely. ``again``: for a run that has them, what is left out is kept."""
    given = partial(_option, again=again)
    count, seconds = Count(0, _MOST), Seconds(_DAY)
    at_once, more_than_none = Count(1, _MOST), Seconds(_DAY, positive=True)
    return together(
        given("--concurrency", at_once, 32, "How many requests at once."),
        given("--per-host", count, 8, "How many of them at one host; 0 for all."),
        given("--delay", seconds, 0.0, "The least time between two requests to a host."),
        given("--timeout", more_than_none, 60.0, "How long a request may take."),
        given("--retries", count, 3, "How often a failed request is tried again."),
        given("--breaker/--no-breaker", None, True, "Leave a host alone that only fails."),
        given("--fsync/--no-fsync", None, False, "Pages survive a power cut, too."),
    )


def http(*, again: bool = False) -> Decorator:
    """How pages are asked for."""
    given = partial(_option, again=again)
    return together(
        given("--max-size", Size(), 64 * 1024**2, "Refuse larger pages.", told="64M"),
        given("--user-agent", UserAgent(), None, "Who asks.", told="data-fetcher-core/VERSION"),
        click.option(
            "--header",
            "headers",
            type=Header(),
            metavar="K:V",
            multiple=True,
            help="Send this with every request. May be repeated. It is kept in the store.",
        ),
        given("--proxy", str, None, "Through this proxy: http://host:port.", told="none"),
        given(
            "--allow-private/--no-allow-private",
            None,
            False,
            "Also connect to loopback and private addresses.",
        ),
    )


def _option(
    flag: str, kind: Any, default: Any, text: str, *, again: bool, told: str = ""
) -> Decorator:
    """One with a default, or with none where what is left out stays as it was."""
    shown = "as before" if again else told or _default(default)
    return click.option(
        flag,
        type=kind,
        metavar=_metavar(kind),
        default=None if again else default,
        help=f"{text}  [default: {shown}]",
    )


def _default(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else f"{value:g}"


def _metavar(kind: Any) -> str | None:
    if isinstance(kind, Size):
        return "BYTES"
    if kind is str or isinstance(kind, UserAgent):
        return "TEXT"
    return None if kind is None else "S" if isinstance(kind, Seconds) else "N"


manner = together(
    store,
    click.option(
        "--grace",
        type=Seconds(3_600.0),
        default=10.0,
        metavar="S",
        help="How long requests in flight may go on after a signal.  [default: 10]",
    ),
    click.option(
        "--view",
        type=click.Choice(KINDS),
        default="auto",
        metavar="|".join(KINDS),
        help="What is shown meanwhile, on stderr.  [default: auto]",
    ),
    click.option(
        "--uvloop",
        "on_uvloop",
        is_flag=True,
        help="Run on uvloop: faster, and an extra of the package.",
    ),
    click.option("--quiet", "-q", is_flag=True, help="The same as --view quiet."),
    click.option("--log-json", is_flag=True, help="The same as --view json."),
    click.option(
        "--json", "as_json", is_flag=True, help="A summary as JSON at the end, on stdout."
    ),
    debug,
)
