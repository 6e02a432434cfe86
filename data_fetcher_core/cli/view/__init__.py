"""What a person sees of a run while it goes on. All of it is written to stderr."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, Protocol, TextIO

from data_fetcher_core.cli.view.watching import Look
from data_fetcher_core.events import Event

Kind = Literal["auto", "live", "lines", "json", "quiet"]
KINDS: tuple[Kind, ...] = ("auto", "live", "lines", "json", "quiet")


class View(Protocol):
    """Shows a run. It is the subscriber of a Fetcher, too."""

    def __call__(self, event: Event) -> None:
        """Take note of what happened: cheap, and never raises."""

    async def watch(self, look: Look) -> None:
        """Look at the queue now and then, until cancelled; a store that fails is shown."""

    def say(self, line: str, *, problem: bool = False) -> None:
        """A line for the person. One that tells of a ``problem`` is shown by all views."""

    def close(self) -> None:
        """Leave the terminal tidy."""


def open_view(kind: Kind, *, title: str) -> View:
    """``auto`` is ``live`` on a terminal and ``lines`` elsewhere."""
    stream = sys.stderr or _nobody()
    if kind == "auto":
        kind = "live" if _can_be_drawn_on(stream) else "lines"
    return _OPENERS[kind](stream, title)


# Imported when needed: a command that shows nothing starts faster without them.
def _live(stream: TextIO, title: str) -> View:
    from data_fetcher_core.cli.view.live import LiveView  # noqa: PLC0415

    return LiveView(stream, title)


def _lines(stream: TextIO, _: str) -> View:
    from data_fetcher_core.cli.view.lines import LinesView  # noqa: PLC0415

    return LinesView(stream)


def _json(stream: TextIO, _: str) -> View:
    from data_fetcher_core.cli.view.json_lines import JsonView  # noqa: PLC0415

    return JsonView(stream)


def _quiet(stream: TextIO, _: str) -> View:
    from data_fetcher_core.cli.view.quiet import QuietView  # noqa: PLC0415

    return QuietView(stream)


_OPENERS = {"live": _live, "lines": _lines, "json": _json, "quiet": _quiet}


def _nobody() -> TextIO:
    """Where to write in a process without stderr."""
    return Path(os.devnull).open("w", encoding="utf-8")


def _can_be_drawn_on(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
