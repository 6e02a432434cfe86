"""How an error is told: in a few lines, and with a traceback only for those who want it."""

from __future__ import annotations

import traceback

from data_fetcher_core.cli.exit_codes import ExitCode, code_of
from data_fetcher_core.cli.view.showable import without_credentials
from data_fetcher_core.errors import DataFetcherError


class Told(Exception):
    """A command failed, and its error was told where everything else was said."""

    def __init__(self, error: DataFetcherError) -> None:
        super().__init__(str(error))
        self.error = error

    @property
    def exit_code(self) -> ExitCode:
        return code_of(self.error)


def error_lines(error: DataFetcherError) -> list[str]:
    """What went wrong, and the notes on what to do about it."""
    said = without_credentials(str(error) or type(error).__name__)
    return [f"Error: {said}", *getattr(error, "__notes__", ())]


def error_trace(error: DataFetcherError) -> str:
    return "".join(traceback.format_exception(error))
