"""What the command line ends with."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Scripts may rely on these numbers."""

    FINISHED = 0
    ERROR = 1
    USAGE = 2
    STORE = 4
    # EX_TEMPFAIL of sysexits.h: not done, and worth starting again.
    STOPPED = 75


EXPLAINED = """\b
Exit codes:
  0   finished, and everything is accounted for
  1   error, or something is not accounted for
  2   usage: the command was not understood
  4   the store could not be reached, is full, lost or damaged
  75  stopped by a signal before the end
"""
