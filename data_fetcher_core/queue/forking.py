"""Whether this is still the process that made something, or a fork of it.

Asking the system for the process id costs a system call, and this is asked with every verb.
"""

from __future__ import annotations

import os

_births = [object()]


def birth() -> object:
    """The same object throughout the life of a process, and another one in its forks."""
    return _births[0]


def _begin_anew() -> None:
    _births[0] = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
