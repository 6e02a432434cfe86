"""Where the package gets time, chance and process ids from, replaced while a world runs."""

from __future__ import annotations

import gc
import logging
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from anyio._backends import _asyncio as anyio_backend

from data_fetcher_core.queue import client, consumers, sweeping, waking
from data_fetcher_core.queue.consumers import Whereabouts
from tests.simulation.loop import OWNER

# How often a process looks whether another one has changed something. Fewer looks, faster seeds.
_LOOK_EVERY = 0.5


@contextmanager
def replaced(
    seed: int,
    *,
    clock_of: Callable[[Any], float],
    here: Callable[[], Whereabouts],
    status: Callable[[int], tuple[str, str] | None],
) -> Iterator[None]:
    """Chance comes from the seed, time from the world, and processes are those of the world."""
    chance = random.Random(f"chance {seed}")
    before = random.getstate()
    random.seed(f"jitter {seed}")
    replacements: list[tuple[Any, str, Any]] = [
        (os, "urandom", chance.randbytes),
        (secrets, "token_hex", lambda size: chance.randbytes(size).hex()),
        (time, "time", lambda: clock_of(OWNER.get())),
        (client, "here", here),
        (consumers, "process_status", status),
        (consumers, "_exists", lambda pid: status(pid) is not None),
        (waking, "LOOK_EVERY", _LOOK_EVERY),
        (sweeping, "watched", _unwatched),
        (anyio_backend.CancelScope, "__hash__", _hash_of_scope),
    ]
    with ExitStack() as stack:
        stack.callback(random.setstate, before)
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable()
        for owner, name, value in replacements:
            stack.enter_context(patch.object(owner, name, value))
        stack.enter_context(_no_collection())
        yield


@contextmanager
def _unwatched(*_: Any) -> Iterator[None]:
    """A thread would look from outside the world, whenever it likes."""
    yield


def _hash_of_scope(scope: anyio_backend.CancelScope) -> int:
    """A scope is in a set only while a task is in it, and only once for each task."""
    return hash(scope._host_task)


@contextmanager
def _no_collection() -> Iterator[None]:
    """When garbage is found depends on all that ran before; so none is, while a world runs."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
