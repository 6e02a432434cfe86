"""The thread behind the SQLite store: cancelled callers, successive loops, beginning and end."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from data_fetcher_core.errors import StoreError
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.kv_store.sqlite import handover as handover_module
from tests.sqlite_support import Gate, Tap, child, everything, put, writers
from tests.waiting import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    async with SQLiteStore(path) as made:
        yield made


async def test_a_cancelled_caller_is_dropped_and_disturbs_nobody(store: SQLiteStore) -> None:
    gate = Gate()
    running = asyncio.ensure_future(store.transact(gate))
    await until(gate.entered.is_set)
    cancelled = asyncio.ensure_future(store.transact(put(b"cancelled")))
    other = asyncio.ensure_future(store.transact(put(b"other")))
    await asyncio.sleep(0)
    cancelled.cancel()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    gate.open()
    await other
    assert list(await everything(store)) == [b"other"]


def test_one_store_serves_one_loop_after_the_other(path: Path) -> None:
    store = SQLiteStore(path)

    async def add(key: bytes) -> list[bytes]:
        await store.transact(put(key))
        return list(await everything(store))

    assert asyncio.run(add(b"a")) == [b"a"]
    assert asyncio.run(add(b"b")) == [b"a", b"b"]
    asyncio.run(store.close())


def test_a_loop_that_died_with_an_answer_under_way_is_no_harm(path: Path) -> None:
    store = SQLiteStore(path)
    gate = Gate()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(store.transact(gate))
    loop.run_until_complete(until(gate.entered.is_set))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(waiting)
    loop.close()
    gate.open()
    asyncio.run(store.transact(put(b"k")))
    asyncio.run(store.close())


async def test_close_ends_the_thread_and_the_next_verb_opens_again(path: Path) -> None:
    store = SQLiteStore(path)
    await store.close()
    for round_number in range(3):
        await store.transact(put(b"%d" % round_number))
        assert len(writers()) == 1
        await store.close()
        assert writers() == []
        assert repr(store).endswith("closed)")
        assert sorted(file.name for file in path.parent.iterdir()) == [
            "runs.db",
            "runs.db-lock",
            "runs.db-reserve",
        ]
    assert len(await everything(store)) == 3
    await store.close()


async def test_close_waits_for_what_was_asked_before(path: Path) -> None:
    store = SQLiteStore(path)
    async with asyncio.TaskGroup() as tasks:
        for i in range(100):
            tasks.create_task(store.transact(put(b"%d" % i)))
        await asyncio.sleep(0)
        await store.close()
    assert len(await everything(store)) == 100
    await store.close()


async def test_a_forgotten_store_takes_its_thread_with_it(path: Path) -> None:
    store = SQLiteStore(path)
    await store.transact(put(b"k"))
    del store
    gc.collect()
    await until(lambda: writers() == [])


def test_an_unclosed_store_does_not_keep_the_interpreter() -> None:
    code = """
    import tempfile
    store = SQLiteStore(tempfile.mkdtemp() + "/runs.db")
    asyncio.run(store.put("k", 1))
    say("done")
    """
    with child(code) as other:
        other.expect("done")
        started = time.monotonic()
        other.rest(within=5)
        assert time.monotonic() - started < 3


async def test_an_unexpected_failure_is_typed_and_the_thread_lives(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tap = Tap()
    async with SQLiteStore(path, connect=tap.connect) as store:
        await store.transact(put(b"a"))
        tap.fail("BEGIN", RuntimeError("a bug"))
        with caplog.at_level(logging.CRITICAL), pytest.raises(StoreError, match="a bug"):
            await store.transact(put(b"b"))
        await store.transact(put(b"c"))
        assert list(await everything(store)) == [b"a", b"c"]


async def test_a_busy_loop_hands_over_only_while_somebody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    naps: list[float] = []
    monkeypatch.setattr(handover_module, "time", SimpleNamespace(sleep=naps.append))
    handover = handover_module.Handover()
    loop = asyncio.get_running_loop()
    with handover.while_waiting(loop), handover.while_waiting(loop):
        await until(lambda: len(naps) >= 3)
    settled = len(naps)
    await asyncio.sleep(0.03)
    assert len(naps) == settled
    assert max(naps) < 0.001
