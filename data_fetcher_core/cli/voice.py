"""Speaking to the person: through the view once there is one, and plainly before."""

from __future__ import annotations

import click

from data_fetcher_core.cli.logs import HeldLogs
from data_fetcher_core.cli.view import Kind, View, open_view


class Voice:
    """All that a command that works on a run says goes through here."""

    def __init__(self) -> None:
        self._logs = HeldLogs()
        self._view: View | None = None

    @property
    def has_view(self) -> bool:
        return self._view is not None

    def open_view(self, kind: Kind, title: str) -> View:
        self._view = open_view(kind, title=title)
        self._logs.hand_over()
        return self._view

    def say(self, line: str, *, problem: bool = False) -> None:
        if self._view is None:
            click.echo(line, err=True)
        else:
            self._view.say(line, problem=problem)

    def close(self) -> None:
        self._logs.hand_over()
        if self._view is not None:
            self._view.close()
            self._view = None
