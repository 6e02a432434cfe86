"""Every store against the model, and all of them against each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.kv_store.redis import RedisStore
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.testing.machines import MakeStore, lockstep_machine
from data_fetcher_core.testing.world import MadeStore
from tests.servers import RedisServer

# How many examples: on every change, and on demand.
MANY = {"memory": 100, "sqlite": 15, "redis": 15, "all three": 15}
MORE = {"memory": 400, "sqlite": 60, "redis": 80, "all three": 40}
_numbers = itertools.count()


@pytest.fixture
def makers(redis_server: RedisServer) -> Iterator[dict[str, MakeStore]]:
    """New, empty stores that can be opened again after everybody has died."""
    with TemporaryDirectory() as folder:

        def make_sqlite() -> MadeStore:
            path = Path(folder) / f"{next(_numbers)}.db"
            return SQLiteStore(path, synchronous="NORMAL"), lambda: SQLiteStore(path)

        def make_redis() -> MadeStore:
            prefix = f"{next(_numbers)}:"
            return (
                RedisStore(redis_server.url, key_prefix=prefix),
                lambda: RedisStore(redis_server.url, key_prefix=prefix),
            )

        redis_server.flush()
        yield {"memory": MemoryStore, "sqlite": make_sqlite, "redis": make_redis}
        redis_server.flush()


def run(makers: dict[str, MakeStore], which: str, examples: int) -> None:
    chosen = list(makers.values()) if which == "all three" else [makers[which]]
    run_state_machine_as_test(
        lockstep_machine(*chosen),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("which", MANY)
def test_in_lockstep_with_the_model(makers: dict[str, MakeStore], which: str) -> None:
    run(makers, which, MANY[which])


@pytest.mark.slow
@pytest.mark.parametrize("which", MORE)
def test_in_lockstep_for_long(makers: dict[str, MakeStore], which: str) -> None:
    run(makers, which, MORE[which])
