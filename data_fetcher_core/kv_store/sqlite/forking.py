"""No connection crosses a fork.

The child of a fork inherits SQLite's notes about its locks, but not the locks. Whatever it opens
afterwards then goes unprotected: its parent, closing, removes the log under it, and commits are
lost. So every writer comes to rest and closes its files before a fork; parent and child open them
again when they need them.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """What has to rest while the process forks."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


_awake: WeakSet[Forkable] = WeakSet()
_paused: list[Forkable] = []


def rest_at_fork(writer: Forkable) -> None:
    """Pause ``writer`` around every fork, for as long as it lives."""
    _awake.add(writer)


def _before() -> None:
    for writer in list(_awake):
        writer.pause()
        _paused.append(writer)


def _after_in_parent() -> None:
    while _paused:
        _paused.pop().resume()


def _after_in_child() -> None:
    # Their threads stayed in the parent: they never wake here.
    _paused.clear()
    _awake.clear()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
