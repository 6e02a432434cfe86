"""A queue whose file is deleted, replaced, cut or damaged: told, left alone, never begun anew."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.core import Entry
from data_fetcher_core.errors import (
    ConfigurationError,
    DataFetcherError,
    StoreCorrupt,
    StoreError,
    StoreLost,
)
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from tests.evidence import Evidence
from tests.fault_support import Ledger, bounded, open_run
from tests.harness import letters, settled

__all__ = ["bounded"]

NAMES = [f"{n:03}" for n in range(120)]
Damage = Callable[[Path], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder / "run.db"


def _files(path: Path) -> dict[str, bytes]:
    """All that lies there, but for what is remade at every opening."""
    passing = ("-shm", "-lock", "-reserve")
    return {
        file.name: file.read_bytes()
        for file in sorted(path.parent.iterdir())
        if not file.name.endswith(passing)
    }


def _other_store(path: Path) -> Path:
    """A file of the same kind, with another run in it."""
    other = path.with_name("other.db")

    async def fill() -> None:
        async with SQLiteStore(other) as store, open_run(store) as queue:
            await queue.enqueue(["foreign"])

    asyncio.run(fill())
    for suffix in ("-lock", "-reserve", "-wal", "-shm"):
        other.with_name(other.name + suffix).unlink(missing_ok=True)
    return other


def _foreign_database(path: Path) -> Path:
    other = path.with_name("foreign.db")
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE anything (a)")
    connection.commit()
    connection.close()
    return other


def _cut(size: int) -> Damage:
    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.truncate(size)

    return damage


def _smash_first_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(random.Random(1).randbytes(4096))


DAMAGES: dict[str, Damage] = {
    "deleted": Path.unlink,
    "emptied": _cut(0),
    "cut in its first page": _cut(100),
    "cut after a few pages": _cut(3 * 4096),
    "a text file": lambda path: _put(path, b"no database at all\n" * 1000),
    "its first page smashed": _smash_first_page,
    "replaced by another store": lambda path: _move(path.with_name("other.db"), path),
    "replaced by a foreign database": lambda path: _move(path.with_name("foreign.db"), path),
}


def _put(path: Path, content: bytes) -> None:
    """Another file by the same name, as an editor or a restore leaves it."""
    fresh = path.with_name("fresh")
    fresh.write_bytes(content)
    fresh.replace(path)


def _move(source: Path, target: Path) -> None:
    source.replace(target)


def _prepare(path: Path) -> None:
    """What replaces the file is made before: a test has a loop of its own running."""
    _other_store(path)
    _foreign_database(path)


@pytest.fixture
def prepared(path: Path) -> Path:
    _prepare(path)
    return path


# --- between two runs ----------------------------------------------------------------------------


async def _fill(path: Path) -> Ledger:
    ledger = Ledger()
    async with SQLiteStore(path) as store, open_run(store) as queue:
        await ledger.enqueue(queue, NAMES[:60], lane="one")
        await ledger.enqueue(queue, NAMES[60:], lane="two")
        for lease in await queue.lease(10):
            await ledger.complete(lease)
    return ledger


def _keep_aside(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.parent.iterdir()}


def _put_back(path: Path, files: dict[Path, bytes]) -> None:
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    for file, content in files.items():
        file.write_bytes(content)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damage_between_two_runs_is_told_and_left_alone(
    prepared: Path, damage: str, shows: Evidence
) -> None:
    path = prepared
    ledger = await _fill(path)
    whole = _keep_aside(path)
    DAMAGES[damage](path)
    damaged = _files(path)
    for _ in range(2):
        with pytest.raises((StoreLost, StoreCorrupt, ConfigurationError)):
            async with SQLiteStore(path) as store, open_run(store) as queue:
                await queue.lease()
    _show_left_alone(shows, f"{damage} between two runs", damaged, path)
    _put_back(path, whole)
    async with SQLiteStore(path) as store, open_run(store) as queue:
        await ledger.balance(queue)


def _show_left_alone(shows: Evidence, what: str, before: dict[str, bytes], path: Path) -> None:
    """It was told; and nothing was begun anew."""
    after = _files(path)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    shows("F46", f"{what}: told, files changed or made", len(changed), exactly=0)


async def test_a_newer_layout_is_left_alone(path: Path, shows: Evidence) -> None:
    ledger = await _fill(path)
    _set_version(path, 2)
    before = _files(path)
    with pytest.raises(ConfigurationError, match="newer"):
        async with SQLiteStore(path) as store, open_run(store) as queue:
            await queue.size()
    _show_left_alone(shows, "a newer layout", before, path)
    _set_version(path, 1)
    async with SQLiteStore(path) as store, open_run(store) as queue:
        await ledger.balance(queue)


def _set_version(path: Path, version: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


async def test_a_log_that_is_gone_is_missed(path: Path, shows: Evidence) -> None:
    """As a crash leaves it: what was acknowledged last is only in the log."""
    await _fill(path)
    async with SQLiteStore(path) as store, open_run(store) as queue:
        await queue.enqueue(["only in the log"])
        crashed = _keep_aside(path)
    _put_back(path, {f: c for f, c in crashed.items() if not f.name.endswith(("-wal", "-shm"))})
    before = _files(path)
    with pytest.raises(StoreLost):
        async with SQLiteStore(path) as store, open_run(store) as queue:
            await queue.size()
    # SQLite may make an empty log to look into.
    log = path.with_name(path.name + "-wal")
    if log.exists() and not log.stat().st_size:
        log.unlink()
    _show_left_alone(shows, "-wal removed", before, path)
    _put_back(path, {f: c for f, c in crashed.items() if not f.name.endswith("-shm")})
    async with SQLiteStore(path) as store, open_run(store) as queue:
        assert (await queue.stats()).ready == len(NAMES) - 10 + 1


# --- under a queue that is open ------------------------------------------------------------------


async def _told(calls: list[Callable[[], Awaitable[Any]]]) -> list[type[DataFetcherError]]:
    told: list[type[DataFetcherError]] = []
    for call in calls:
        try:
            await call()
        except DataFetcherError as error:
            told.append(type(error))
    return told


@pytest.mark.parametrize("damage", ["deleted", "a text file", *list(DAMAGES)[-2:]])
async def test_another_file_under_an_open_queue_is_told_and_not_written_to(
    prepared: Path, damage: str, shows: Evidence
) -> None:
    path, ledger = prepared, await _fill(prepared)
    aside = path.with_name("aside.db")
    async with SQLiteStore(path) as store, open_run(store, op_timeout=0.5) as queue:
        held = await queue.lease(3)
        aside.hardlink_to(path)
        DAMAGES[damage](path)
        there = path.read_bytes() if path.exists() else None
        told = await _told(
            [
                lambda: queue.enqueue(["new"]),
                held[0].complete,
                held[1].release,
                queue.lease,
                queue.sweep,
            ]
        )
        assert told
        assert set(told) <= {StoreLost, StoreCorrupt, ConfigurationError}
        shows("F46", f"{damage} under an open queue: verbs told, of 5", len(told), exactly=5)
        written = (path.read_bytes() if path.exists() else None) != there
        shows("F46", f"{damage} under an open queue: written to", int(written), exactly=0)
        aside.replace(path)
        for lease in held:
            await ledger.complete(lease)
        await ledger.balance(queue)


@pytest.mark.parametrize("damage", ["emptied", "cut in its first page", "cut after a few pages"])
async def test_a_file_cut_under_an_open_queue_is_told_or_does_no_harm(
    path: Path, damage: str
) -> None:
    """What is in memory may still be read, and even written back; the rest is missed."""
    ledger = await _fill(path)
    store = SQLiteStore(path)
    queue = open_run(store, op_timeout=0.5)
    await queue.lease(3)
    DAMAGES[damage](path)
    told = await _told(
        [lambda: ledger.enqueue(queue, ["new"]), queue.lease, queue.sweep, queue.stats]
    )
    told += await _told([queue.close, store.close])
    try:
        left = await _open_and_drain(path)
    except DataFetcherError as error:
        told.append(type(error))
    else:
        assert not left.is_consistent or left.names >= ledger.sent - ledger.completed
    assert all(issubclass(kind, StoreError | ConfigurationError) for kind in told)


# --- one bit, anywhere ---------------------------------------------------------------------------


@dataclass
class Left:
    """What a queue still held, and whether it knew so: a row in a wrong place is told by counts."""

    names: set[str]
    taken: int
    dead: int
    is_consistent: bool


async def _open_and_drain(path: Path) -> Left:
    taken: list[str] = []
    async with SQLiteStore(path, synchronous="NORMAL") as store, open_run(store) as queue:
        while leases := await queue.lease(100):
            assert all(lease.item == lease.id for lease in leases)
            await asyncio.gather(*(lease.complete() for lease in leases))
            taken += [lease.item for lease in leases]
            await settled(queue)
        dead = await letters(queue)
        wrong, stats = await queue.recount(), await queue.stats()
    consistent = not wrong and not stats.unaccounted and not stats.size
    return Left(set(taken), len(taken), len(dead), consistent)


async def _filled(path: Path) -> dict[Path, bytes]:
    async with SQLiteStore(path) as store, open_run(store) as queue:
        await queue.enqueue([Entry(n, id=n, key=n, lane=n[-1]) for n in NAMES])
    return _keep_aside(path)


async def _outcome(path: Path) -> str:
    """What damage has done: it was told, or did no harm, or did."""
    try:
        async with asyncio.timeout(20.0):
            left = await _open_and_drain(path)
    except DataFetcherError:
        return "told"
    if not left.is_consistent:
        return "told"
    whole = left.names <= set(NAMES) and left.taken == len(left.names) == len(NAMES) - left.dead
    return "no harm" if whole and left.dead <= 1 else "harm"


@pytest.mark.parametrize("flips", [25, pytest.param(300, marks=pytest.mark.slow)])
async def test_a_bit_turned_between_two_runs_is_told_or_does_no_harm(
    path: Path, flips: int, shows: Evidence
) -> None:
    whole, dice = await _filled(path), random.Random(flips)
    seen: Counter[str] = Counter()
    for _ in range(flips):
        at = dice.randrange(len(whole[path]))
        _turn_bit(path, whole, at, dice.randrange(8))
        seen[await _outcome(path)] += 1
    shows("F46", f"{flips} bits turned: told", seen["told"], at_least=1)
    shows("F46", f"{flips} bits turned: did no harm", seen["no harm"], at_least=1)
    shows("F46", f"{flips} bits turned: did harm, and were not told", seen["harm"], exactly=0)


async def test_a_row_in_a_wrong_place_is_told_or_does_no_harm(path: Path, shows: Evidence) -> None:
    """SQLite trusts the order of its rows: it walks past some that it does not find."""
    whole, dice = await _filled(path), random.Random(1)
    seen: Counter[str] = Counter()
    for key in dice.sample(_keys(path), 100):
        at = whole[path].index(key) + dice.randrange(len(key))
        _turn_bit(path, whole, at, dice.randrange(8))
        seen[await _outcome(path)] += 1
    shows("F46", "a bit of 100 keys turned: did harm, and was not told", seen["harm"], exactly=0)
    assert seen["told"]


@pytest.mark.parametrize("kind", ["TEXT", "INTEGER", "REAL"])
async def test_a_value_that_is_no_longer_bytes_does_no_harm(path: Path, kind: str) -> None:
    whole = await _filled(path)
    for key in random.Random(kind).sample(_keys(path), 20):
        _put_back(path, whole)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"UPDATE kv SET v = CAST(v AS {kind}) WHERE k = ?", (key,))
        assert await _outcome(path) != "harm"


async def test_what_was_found_and_is_not_there_to_delete_is_told(path: Path) -> None:
    """Before a request is handed out that would be found again."""

    def step(tx: Any) -> None:
        assert tx.range(b"a", b"z") == [(b"k", b"v")]
        tx._connection.execute("DELETE FROM kv")
        tx.delete_many([b"k", b"never there"])

    async with SQLiteStore(path) as store:
        await store.transact(lambda tx: tx.put_many([(b"k", b"v")]))
        with pytest.raises(StoreCorrupt, match="not in order"):
            await store.transact(step)


async def test_a_table_whose_name_is_no_text_is_told(path: Path) -> None:
    """Not even SQLite's own message can be read then."""
    whole = await _filled(path)
    for at in range(3, 19):
        _turn_bit(path, whole, whole[path].index(b"tablecommitscommits") + at, 7)
        with pytest.raises(StoreCorrupt):
            await _open_and_drain(path)


def _keys(path: Path) -> list[bytes]:
    with closing(sqlite3.connect(path)) as connection:
        return [key for (key,) in connection.execute("SELECT k FROM kv")]


def _turn_bit(path: Path, whole: dict[Path, bytes], at: int, bit: int) -> None:
    content = bytearray(whole[path])
    content[at] ^= 1 << bit
    _put_back(path, {**whole, path: bytes(content)})
