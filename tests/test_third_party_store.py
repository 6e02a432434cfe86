"""The store that docs/stores.md shows its readers, put through the kit as it stands there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from data_fetcher_core import RequestMeta, open_queue
from data_fetcher_core.core import DeathReason
from data_fetcher_core.errors import StoreLost, StoreUnavailable
from data_fetcher_core.testing import check_queue, check_store
from data_fetcher_core.testing.machines import lockstep_machine
from tests.pages import ROOT, python_blocks

MakeStore = Callable[[Path], Any]


@pytest.fixture(scope="module")
def journal_store() -> MakeStore:
    page = ROOT / "docs" / "stores.md"
    (block,) = [b for b in python_blocks(page) if "class JournalStore(" in b.text]
    names: dict[str, Any] = {}
    exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
    make: MakeStore = names["JournalStore"]
    return make


class Places:
    """A new file for each store, and the last one again."""

    def __init__(self, folder: Path, make: MakeStore) -> None:
        self._folder = folder
        self._make = make
        self._numbers = count()
        self.last = folder

    def new(self) -> Any:
        self.last = self._folder / f"journal{next(self._numbers)}.txt"
        return self._make(self.last)

    def again(self) -> Any:
        return self._make(self.last)

    def with_reopening(self) -> Any:
        store, path = self.new(), self.last
        return store, lambda: self._make(path)


@pytest.fixture
def places(tmp_path: Path, journal_store: MakeStore) -> Places:
    return Places(tmp_path, journal_store)


async def test_it_is_a_store(places: Places) -> None:
    await check_store(places.new, reopen=places.again)


async def test_it_holds_a_queue(places: Places) -> None:
    await check_queue(places.new)


def test_it_does_what_the_model_does(places: Places) -> None:
    run_state_machine_as_test(
        lockstep_machine(places.with_reopening),
        settings=settings(
            max_examples=10,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


async def test_a_torn_last_line_is_dropped(places: Places) -> None:
    async with places.new() as store:
        await store.put("kept", 1)
    whole = places.last.read_bytes()
    places.last.write_bytes(whole + b"6162=63")
    async with places.again() as store:
        assert await store.get("kept") == 1
    assert places.last.read_bytes() == whole


async def test_errors_of_the_disk_are_ours(tmp_path: Path, journal_store: MakeStore) -> None:
    store = journal_store(tmp_path / "absent" / "journal.txt")
    with pytest.raises(StoreUnavailable, match="absent"):
        await store.get("key")
    (tmp_path / "absent").mkdir()
    assert await store.get("key", "default") == "default"
    await store.close()


async def test_an_emptied_store_is_not_a_finished_run(places: Places) -> None:
    async with places.new() as store:
        queue = open_queue(store, run_id="r")
        await queue.enqueue([RequestMeta("https://a.example/")])
        await store.close()
        places.last.write_bytes(b"")
        with pytest.raises(StoreLost, match="emptied"):
            await queue.stats()
        with pytest.raises(StoreLost):
            await anext(queue.leases(until="drained"))
        with suppress(StoreLost):
            await queue.close()


async def test_a_damaged_record_blocks_nobody(places: Places) -> None:
    def damage(tx: Any) -> bytes:
        ((key, record),) = [kv for kv in tx.range(b"", b"\xff") if b"/damaged" in kv[1]]
        broken = record.replace(b"/damaged", b"/dam\x00ged")
        tx.put_many([(key, broken)])
        return bytes(broken)

    async with places.new() as store, open_queue(store, run_id="r") as queue:
        await queue.enqueue([RequestMeta(f"https://a.example/{n}") for n in ("damaged", "whole")])
        broken = await store.transact(damage)
        (lease,) = await queue.lease(max_items=2)
        assert lease.item.url.path == "/whole"
        await lease.complete()
        (letter,) = [letter async for letter in queue.dead_letters()]
        assert letter.reason is DeathReason.CORRUPT
        assert letter.item is None
        assert letter.raw == broken
