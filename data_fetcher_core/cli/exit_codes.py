"""What the command line ends with."""

from __future__ import annotations

from enum import IntEnum

from data_fetcher_core.errors import (
    ConfigurationError,
    DataFetcherError,
    StoreError,
    ValidationError,
)


class ExitCode(IntEnum):
    """Scripts may rely on these numbers."""

    FINISHED = 0
    ERROR = 1
    USAGE = 2
    DEAD_LETTERS = 3
    STORE = 4
    # EX_TEMPFAIL of sysexits.h: not done, and worth starting again.
    STOPPED = 75


EXPLAINED = """\b
Exit codes:
  0   finished, and everything is accounted for
  1   error, or something is not accounted for
  2   usage: the command was not understood, or does not fit the run
  3   finished, but some requests were given up: they are dead letters
  4   the store could not be reached, is full, lost or damaged
  75  stopped before the end; resume it
"""


def code_of(error: DataFetcherError) -> ExitCode:
    """What a command that fails with this error ends with."""
    if isinstance(error, StoreError):
        return ExitCode.STORE
    if isinstance(error, ConfigurationError | ValidationError):
        return ExitCode.USAGE
    return ExitCode.ERROR
