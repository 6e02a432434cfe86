"""The SQLite store in one process: its verbs, its groups, its thread."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.errors import ConfigurationError, StoreError, StoreFull, ValidationError
from data_fetcher_core.kv_store.base import ChangeCounter, Transaction
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.testing import check_store
from tests.sqlite_support import (
    Gate,
    Tap,
    as_one_group,
    everything,
    integrity,
    outcome,
    put,
    writers,
)
from tests.waiting import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    async with SQLiteStore(path) as made:
        yield made


# --- construction --------------------------------------------------------------------------------


def test_making_a_store_needs_no_loop_and_touches_nothing(path: Path) -> None:
    assert repr(SQLiteStore(path)) == f"SQLiteStore({str(path)!r}, closed)"
    assert list(path.parent.iterdir()) == []
    assert writers() == []


@pytest.mark.parametrize("nowhere", [":memory:", "", "a\0b"])
def test_what_is_no_file_is_refused(nowhere: str) -> None:
    with pytest.raises(ConfigurationError, match="memory://"):
        SQLiteStore(nowhere)


@pytest.mark.parametrize(
    "setting",
    [
        {"synchronous": "OFF"},
        {"synchronous": "full; DROP TABLE kv"},
        {"busy_timeout": -1},
        {"busy_timeout": float("nan")},
        {"reserve_bytes": -1},
        {"reserve_bytes": True},
        {"reserve_bytes": 1},
        {"reserve_bytes": 65_535},
    ],
)
def test_a_setting_that_cannot_be_is_named(path: Path, setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(setting))):
        SQLiteStore(path, **setting)


async def test_the_file_is_marked_and_durable(path: Path) -> None:
    tap = Tap()
    async with SQLiteStore(path, connect=tap.connect) as store:
        await store.transact(put(b"k"))
        assert repr(store) == f"SQLiteStore({str(path)!r}, open)"
    connection = sqlite3.connect(path)
    pragmas = [
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version", "journal_mode")
    ]
    connection.close()
    assert pragmas == [0x44464331, 1, "wal"]
    assert tap.count("PRAGMA synchronous = FULL") == 1


async def test_normal_is_accepted(path: Path) -> None:
    tap = Tap()
    async with SQLiteStore(path, synchronous="NORMAL", connect=tap.connect) as store:
        await store.transact(put(b"k"))
    assert tap.count("PRAGMA synchronous = NORMAL") == 1


async def test_a_strange_name_and_a_link_lead_to_one_store(tmp_path: Path) -> None:
    odd = tmp_path / "a?b#c%41 ü.db"
    link = tmp_path / "link.db"
    link.symlink_to(odd)
    async with SQLiteStore(odd) as one, SQLiteStore(link) as other:
        await one.transact(put(b"k", b"v"))
        assert await everything(other) == {b"k": b"v"}
    assert not (tmp_path / "link.db-lock").exists()


# --- verbs ---------------------------------------------------------------------------------------


async def test_the_store_kit(tmp_path: Path) -> None:
    made = 0

    def make() -> SQLiteStore:
        nonlocal made
        made += 1
        return SQLiteStore(tmp_path / f"{made}.db")

    await check_store(make)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 200])
async def test_batches_of_any_size(store: SQLiteStore, count: int) -> None:
    pairs = [(b"%04d" % i, b"%d" % i) for i in range(count)]
    await store.transact(lambda tx: tx.put_many(iter(pairs)))
    keys = [key for key, _ in pairs]

    def read(tx: Transaction) -> list[bytes | None]:
        return tx.get_many([b"none", *reversed(keys), *keys])

    values = [value for _, value in pairs]
    assert await store.transact(read) == [None, *reversed(values), *values]
    await store.transact(lambda tx: tx.delete_many([*keys[1:], b"none"]))
    assert await everything(store) == dict(pairs[:1])


async def test_the_last_of_two_values_in_a_batch_stays(store: SQLiteStore) -> None:
    await store.transact(lambda tx: tx.put_many([(b"k", b"1"), (b"k", b"2")]))
    assert await everything(store) == {b"k": b"2"}


@pytest.mark.parametrize(("limit", "found"), [(None, 3), (0, 0), (2, 2), (10**30, 3)])
async def test_limits(store: SQLiteStore, limit: int | None, found: int) -> None:
    await store.transact(lambda tx: tx.put_many([(b"%d" % i, b"") for i in range(4)]))
    pairs = await store.transact(lambda tx: tx.range(b"1", b"4", limit))
    assert [key for key, _ in pairs] == [b"1", b"2", b"3"][:found]


def _random_step(seed: int) -> Callable[[Transaction], Any]:
    """A function that reads and writes at random, and sometimes fails."""

    def step(tx: Transaction) -> Any:
        choose = random.Random(seed)
        keys = [choose.randbytes(choose.randrange(3)) for _ in range(8)]
        tx.put_many([(key, choose.randbytes(4)) for key in keys[:4]])
        tx.delete_many(keys[3:6])
        if choose.random() < 0.2:
            raise LookupError(seed)
        return tx.get_many(keys), tx.range(min(keys), max(keys), choose.randrange(9))

    return step


async def test_it_agrees_with_memory(store: SQLiteStore) -> None:
    memory = MemoryStore()
    for group in range(20):
        steps = [_random_step(group * 100 + i) for i in range(10)]
        expected = [await _settled(memory.transact(step)) for step in steps]
        found = await asyncio.gather(*(_settled(store.transact(step)) for step in steps))
        assert found == expected


async def _settled(running: Any) -> Any:
    try:
        return await running
    except LookupError as error:
        return error.args


@pytest.mark.parametrize("wrong", [object(), 2**70])
async def test_what_sqlite_cannot_hold_is_the_callers_mistake(
    store: SQLiteStore, wrong: Any
) -> None:
    with pytest.raises(ValidationError, match="bytes"):
        await store.transact(lambda tx: tx.put_many([(b"k", wrong)]))
    assert await everything(store) == {}


# --- groups --------------------------------------------------------------------------------------


async def test_what_waits_shares_a_commit_and_one_failure_is_alone(path: Path) -> None:
    tap = Tap()

    def half(tx: Transaction) -> None:
        tx.put_many([(b"half", b"")])
        raise LookupError("half-way")

    async with SQLiteStore(path, connect=tap.connect) as store:
        await store.transact(put(b"first"))
        tap.statements.clear()
        results = await as_one_group(store, put(b"a"), half, put(b"b"))
        assert tap.count("COMMIT") == 2  # the gate's and the group's
        assert tap.count("SAVEPOINT") == 3
        assert results[0] is results[2] is None
        assert isinstance(results[1], LookupError)
        assert list(await everything(store)) == [b"a", b"b", b"first"]


async def test_one_alone_needs_no_savepoint_and_leaves_nothing(path: Path) -> None:
    tap = Tap()

    def half(tx: Transaction) -> None:
        tx.put_many([(b"half", b"")])
        raise StopIteration

    async with SQLiteStore(path, connect=tap.connect) as store:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await store.transact(half)
        assert await everything(store) == {}
    assert tap.count("SAVEPOINT") == 0


async def test_a_group_is_bounded(path: Path) -> None:
    tap = Tap()
    async with SQLiteStore(path, connect=tap.connect) as store:
        await store.transact(put(b"first"))
        tap.statements.clear()
        await as_one_group(store, *(put(b"%d" % i) for i in range(300)))
        assert tap.count("COMMIT") == 1 + 3


async def test_nobody_is_answered_before_the_commit(path: Path) -> None:
    tap = Tap()
    gate = Gate()
    async with SQLiteStore(path, connect=tap.connect) as store:
        await everything(store)
        tap.before["COMMIT"] = lambda: gate(None)  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(store.transact(put(b"%d" % i))) for i in range(3)]
            await until(gate.entered.is_set)
            await asyncio.sleep(0.02)
            assert not any(task.done() for task in waiting)
            gate.open()


async def test_an_error_that_ends_the_transaction_costs_the_others_nothing(path: Path) -> None:
    ran: list[str] = []

    def steady(tx: Transaction) -> str:
        ran.append("steady")
        tx.put_many([(b"steady", b"")])
        return "steady"

    def greedy(tx: Transaction) -> None:
        tx.put_many([(b"greedy", bytes(1_000_000))])

    tap = Tap("PRAGMA max_page_count = 40")
    async with SQLiteStore(path, connect=tap.connect) as store:
        await store.transact(put(b"first"))
        results = await as_one_group(store, steady, greedy, put(b"last"))
        assert results[0] == "steady"
        assert isinstance(results[1], StoreFull)
        assert ran == ["steady", "steady"]
        assert set(await everything(store)) >= {b"first", b"steady"}


async def test_a_swallowed_error_of_sqlite_is_not_a_success(store: SQLiteStore) -> None:
    def swallow(tx: Transaction) -> str:
        tx.put_many([(b"before", b"")])
        with suppress(ValidationError):
            tx.put_many([(b"k", object())])  # type: ignore[list-item]
        with pytest.raises(StoreError, match="is over"):
            tx.put_many([(b"after", b"")])
        return "all is well"

    with pytest.raises(ValidationError):
        await store.transact(swallow)
    assert await everything(store) == {}


async def test_a_transaction_ends_with_its_function(store: SQLiteStore) -> None:
    kept = await store.transact(lambda tx: tx)
    with pytest.raises(StoreError, match="inside its function"):
        kept.get_many([b"k"])


# --- others' changes -----------------------------------------------------------------------------


async def test_change_count_tells_others_commits_from_own(path: Path) -> None:
    async with SQLiteStore(path) as store, SQLiteStore(path) as other:
        assert isinstance(store, ChangeCounter)
        before = await store.change_count()
        await store.transact(put(b"own"))
        await outcome(store, lambda tx: tx.get_many([object()]))  # type: ignore[list-item]
        await everything(other)
        assert await store.change_count() == before
        await other.transact(put(b"other's"))
        after = await store.change_count()
        assert after != before
        assert await store.change_count() == after
    assert integrity(path) == "ok"


async def test_change_count_tells_what_was_committed_while_the_store_was_closed(
    path: Path,
) -> None:
    async with SQLiteStore(path) as store, SQLiteStore(path) as other:
        await other.transact(put(b"before"))
        before = await store.change_count()
        await store.close()
        await other.transact(put(b"meanwhile"))
        assert await store.change_count() != before
