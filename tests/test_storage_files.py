"""Pages in a directory: whole or not there, once per content, many at a time."""
# ruff: noqa: ASYNC240 - a test may touch files from its loop

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import threading
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.core import Sink, Storage, Stored
from data_fetcher_core.errors import ConfigurationError, StorageError, ValidationError
from data_fetcher_core.queue.consumers import place_of
from data_fetcher_core.storage import FileStorage
from data_fetcher_core.storage.body import Body
from data_fetcher_core.storage.sink import KEPT_IN_MEMORY
from tests.waiting import until

MIB = 1024 * 1024


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
async def storage(place: Path) -> AsyncIterator[FileStorage]:
    storage = FileStorage(place)
    await storage.bind("birth")
    yield storage
    await storage.close()


async def store(storage: Storage, *chunks: bytes) -> Stored:
    sink = storage.receive()
    for chunk in chunks:
        await sink.write(chunk)
    return await sink.commit()


def pages(place: Path) -> dict[str, bytes]:
    """Every file under a final name; all are what their names say."""
    found = {
        path.relative_to(place).as_posix(): path.read_bytes()
        for path in (place / "pages").rglob("*")
        if path.is_file()
    }
    for name, content in found.items():
        assert hashlib.sha256(content).hexdigest() == name.removeprefix("pages/").replace("/", "")
    return found


def temporary(place: Path) -> list[Path]:
    return list((place / "tmp").iterdir())


# --- one page -----------------------------------------------------------------------------------


async def test_a_page_lies_under_its_digest(storage: FileStorage, place: Path) -> None:
    stored = await store(storage, b"hello ", b"world")
    digest = hashlib.sha256(b"hello world").hexdigest()
    assert stored == Stored(digest, 11, f"pages/{digest[:2]}/{digest[2:]}")
    assert pages(place) == {stored.path: b"hello world"}
    assert temporary(place) == []


async def test_an_empty_page_is_a_page(storage: FileStorage, place: Path) -> None:
    stored = await store(storage)
    assert (stored.length, pages(place)) == (0, {stored.path: b""})


async def test_it_is_a_storage_and_gives_sinks(storage: FileStorage) -> None:
    as_storage: Storage = storage
    as_sink: Sink = as_storage.receive()
    await as_sink.discard()


async def test_nothing_is_visible_before_commit(storage: FileStorage, place: Path) -> None:
    sink = storage.receive()
    await sink.write(bytes(3 * MIB))
    assert pages(place) == {}
    assert len(temporary(place)) == 1
    await sink.commit()
    assert len(pages(place)) == 1
    assert temporary(place) == []


@pytest.mark.parametrize(
    "sizes",
    [
        [KEPT_IN_MEMORY],
        [KEPT_IN_MEMORY, 1],
        [KEPT_IN_MEMORY + 1],
        [65_536] * 100,
        [300_000] * 9,
        [5 * MIB, 0, 1, 5 * MIB],
        [1, 5 * MIB, 1],
    ],
)
async def test_a_page_of_any_size_arrives_whole(
    storage: FileStorage, place: Path, sizes: list[int]
) -> None:
    chunks = [random.Random(size).randbytes(size) for size in sizes]
    stored = await store(storage, *chunks)
    assert stored.length == sum(sizes)
    assert pages(place) == {stored.path: b"".join(chunks)}
    assert temporary(place) == []


async def test_up_to_a_mebibyte_stays_in_memory(storage: FileStorage, place: Path) -> None:
    sink = storage.receive()
    for _ in range(16):
        await sink.write(bytes(65_536))
    assert temporary(place) == []
    await sink.write(b"x")
    assert [path.stat().st_size for path in temporary(place)] == [MIB + 1]
    await sink.discard()


async def test_what_is_discarded_leaves_nothing(storage: FileStorage, place: Path) -> None:
    small, large = storage.receive(), storage.receive()
    await small.write(b"small")
    await large.write(bytes(2 * MIB))
    await small.discard()
    await large.discard()
    await large.discard()
    assert (pages(place), temporary(place)) == ({}, [])


async def test_a_sink_has_one_end(storage: FileStorage, place: Path) -> None:
    sink = storage.receive()
    await sink.write(b"page")
    stored = await sink.commit()
    await sink.discard()
    assert await sink.commit() == stored
    assert pages(place) == {stored.path: b"page"}
    with pytest.raises(ValidationError, match=r"was committed: take a new sink"):
        await sink.write(b"more")
    thrown_away = storage.receive()
    await thrown_away.discard()
    with pytest.raises(ValidationError, match=r"was discarded: take a new sink"):
        await thrown_away.write(b"more")
    with pytest.raises(ValidationError, match=r"was discarded"):
        await thrown_away.commit()


async def test_large_chunks_are_hashed_off_the_loop(
    storage: FileStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_the_loop: list[bool] = []
    keep = Body.keep

    def noted(body: Body, chunk: bytes) -> None:
        on_the_loop.append(threading.current_thread() is threading.main_thread())
        keep(body, chunk)

    monkeypatch.setattr(Body, "keep", noted)
    await store(storage, bytes(65_536), bytes(500_000), bytes(2_000))
    assert on_the_loop == [True, False, True]


# --- the same content ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 2 * MIB])
async def test_the_same_content_is_stored_once(
    storage: FileStorage, place: Path, size: int
) -> None:
    first = await store(storage, bytes(size))
    inode = (place / first.path).stat().st_ino
    assert await store(storage, bytes(size)) == first
    assert (place / first.path).stat().st_ino == inode
    assert (len(pages(place)), temporary(place)) == (1, [])


async def test_the_same_content_at_one_moment(storage: FileStorage, place: Path) -> None:
    stored = await asyncio.gather(*(store(storage, b"same") for _ in range(100)))
    assert set(stored) == {stored[0]}
    assert (len(pages(place)), temporary(place)) == (1, [])


async def test_a_file_of_the_wrong_length_is_replaced(storage: FileStorage, place: Path) -> None:
    stored = await store(storage, b"the whole page")
    (place / stored.path).write_bytes(b"the wh")
    assert await store(storage, b"the whole page") == stored
    assert pages(place) == {stored.path: b"the whole page"}


# --- many at a time -----------------------------------------------------------------------------


async def test_those_who_commit_together_share_a_hop(
    storage: FileStorage, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    place_them = storage._pages.place

    def counted(bodies: Any) -> Any:
        batches.append(len(bodies))
        assert threading.current_thread() is not threading.main_thread()
        return place_them(bodies)

    monkeypatch.setattr(storage._pages, "place", counted)
    await asyncio.gather(*(store(storage, b"%d" % number) for number in range(100)))
    assert len(pages(place)) == 100
    assert batches == [64, 36]


async def test_one_that_fails_fails_alone(storage: FileStorage, place: Path) -> None:
    bodies = [b"page %d" % number for number in range(50)]
    spoilt = hashlib.sha256(bodies[7]).hexdigest()[:2]
    (place / "pages" / spoilt).write_text("in the way")
    outcomes = await asyncio.gather(*(store(storage, b) for b in bodies), return_exceptions=True)
    (place / "pages" / spoilt).unlink()
    failed = {
        b for b, outcome in zip(bodies, outcomes, strict=True) if isinstance(outcome, Exception)
    }
    assert failed == {b for b in bodies if hashlib.sha256(b).hexdigest().startswith(spoilt)}
    assert set(pages(place).values()) == set(bodies) - failed
    error = outcomes[7]
    assert isinstance(error, StorageError)
    assert str(place) in str(error)
    assert "Not a directory" in str(error)


@pytest.mark.parametrize("size", [10, 2 * MIB])
async def test_a_commit_that_failed_may_be_tried_again(
    storage: FileStorage, place: Path, size: int
) -> None:
    sink = storage.receive()
    await sink.write(bytes(size))
    obstacle = place / "pages" / hashlib.sha256(bytes(size)).hexdigest()[:2]
    obstacle.write_text("in the way")
    for _ in range(2):
        with pytest.raises(StorageError):
            await sink.commit()
    obstacle.unlink()
    stored = await sink.commit()
    assert pages(place) == {stored.path: bytes(size)}
    assert temporary(place) == []


async def test_who_is_cancelled_harms_nobody(storage: FileStorage, place: Path) -> None:
    """At any instant of a commit, whatever its size; who stays is served."""
    rng = random.Random(7)

    async def one(number: int) -> None:
        sink = storage.receive()
        try:
            await sink.write(b"%d" % number + bytes(rng.choice([0, 10, 1500 * 1024])))
            await sink.commit()
        finally:
            await sink.discard()

    tasks = [asyncio.create_task(one(number)) for number in range(200)]
    for task in rng.sample(tasks, 100):
        await asyncio.sleep(rng.choice([0, 0, 0.001]))
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {type(None), asyncio.CancelledError}
    kept = {int(content.rstrip(b"\0")) for content in pages(place).values()}
    served = {number for number, outcome in enumerate(outcomes) if outcome is None}
    assert len(served) >= 100
    assert served <= kept
    assert temporary(place) == []


async def test_closing_waits_for_what_is_under_way(place: Path) -> None:
    storage = FileStorage(place)
    await storage.bind("birth")
    async with asyncio.TaskGroup() as tasks:
        commits = [tasks.create_task(store(storage, b"%d" % n)) for n in range(200)]
        await asyncio.sleep(0)
        await storage.close()
        assert all(commit.done() for commit in commits)
    assert len(pages(place)) == 200
    await until(lambda: not [t for t in threading.enumerate() if t.name.startswith("storage")])
    await store(storage, b"and it may be used again")
    await storage.close()


def test_a_forked_child_has_threads_and_names_of_its_own(place: Path) -> None:
    storage = FileStorage(place)
    asyncio.run(_store_some(storage, "parent"))
    with warnings.catch_warnings(action="ignore"):  # that there are threads is the point
        pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            asyncio.run(_store_some(storage, "child"))
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert {f"{who} {n}".encode() for who in ("parent", "child") for n in range(20)} == set(
        pages(place).values()
    )
    owners = [place_of(os.fsencode(path.name)) for path in temporary(place)]
    assert {owner.pid for owner in owners if owner} == {pid, os.getpid()}


async def _store_some(storage: FileStorage, who: str) -> None:
    """One by one, so that all threads are there and idle; and the half of a page."""
    for number in range(20):
        await store(storage, f"{who} {number}".encode())
    await storage.receive().write(bytes(2 * MIB))


# --- power cuts ---------------------------------------------------------------------------------


class Syncs:
    """What was synced and renamed, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
        self.steps: list[tuple[str, str]] = []
        fsync, rename = os.fsync, os.rename

        def noted_sync(fd: int) -> None:
            fsync(fd)
            path = Path(f"/proc/self/fd/{fd}").readlink()
            self.steps.append(("sync", path.relative_to(place).as_posix()))

        def noted_rename(old: str, new: str) -> None:
            rename(old, new)
            names = [Path(name).relative_to(place).as_posix() for name in (old, new)]
            self.steps.append(("rename", " ".join(names)))

        monkeypatch.setattr(os, "fsync", noted_sync)
        monkeypatch.setattr(os, "rename", noted_rename)


async def test_with_fsync_all_is_on_the_disk_before_anybody_is_answered(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FileStorage(place, fsync=True)
    await storage.bind("birth")
    await asyncio.gather(*(store(storage, b"first %d" % n) for n in range(300)))
    noted = Syncs(monkeypatch, place)
    stored = await asyncio.gather(*(store(storage, b"page %d" % n) for n in range(20)))
    steps = noted.steps
    renames = [words.split() for verb, words in steps if verb == "rename"]
    assert sorted(new for _, new in renames) == sorted(one.path for one in stored)
    for old, new in renames:
        at = steps.index(("rename", f"{old} {new}"))
        assert ("sync", old) in steps[:at]
        assert ("sync", new.rpartition("/")[0]) in steps[at:]
    folders = [words for verb, words in steps[-20:] if words.startswith("pages/")]
    assert len(set(folders)) == len(folders)
    await storage.close()


async def test_with_fsync_a_new_folder_is_on_the_disk_as_well(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FileStorage(place, fsync=True)
    await storage.bind("birth")
    noted = Syncs(monkeypatch, place)
    stored = await store(storage, b"page")
    assert ("sync", "pages") in noted.steps
    assert noted.steps[-1] == ("sync", stored.path.rpartition("/")[0])
    await storage.close()


async def test_with_fsync_what_was_there_is_made_safe_too(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    careless, careful = FileStorage(place), FileStorage(place, fsync=True)
    stored = await store(careless, b"page")
    noted = Syncs(monkeypatch, place)
    assert await store(careful, b"page") == stored
    folder = stored.path.rpartition("/")[0]
    assert noted.steps == [("sync", stored.path), ("sync", folder)]
    await careless.close()
    await careful.close()


async def test_without_fsync_there_is_none(
    storage: FileStorage, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Syncs(monkeypatch, place)
    await store(storage, b"page")
    assert [verb for verb, _ in noted.steps] == ["rename"]


# --- where there is no directory ----------------------------------------------------------------


async def test_it_stores_without_having_been_bound(place: Path) -> None:
    storage = FileStorage(place)
    await store(storage, b"page")
    assert await storage.append_index([(1, {"url": "a"})]) == 1
    await storage.close()


@pytest.mark.parametrize("directory", ["", "a\0b"])
def test_what_is_no_directory(directory: str) -> None:
    with pytest.raises(ConfigurationError, match="is no directory"):
        FileStorage(directory)


async def test_it_stays_where_it_was_made(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = FileStorage("out")
    monkeypatch.chdir("/")
    await store(storage, b"page")
    assert len(pages(place)) == 1
    assert repr(storage) == f"FileStorage({str(place)!r})"
    await storage.close()


async def test_a_directory_that_went_away_is_not_made_again(
    storage: FileStorage, place: Path
) -> None:
    """As when its disk was unmounted: what is written now would not be found again."""
    place.rename(place.with_name("elsewhere"))
    place.mkdir()
    with pytest.raises(StorageError, match=r"no longer the directory of this run"):
        await store(storage, b"page")
    with pytest.raises(StorageError, match=r"no longer the directory of this run"):
        await storage.append_index([(1, {"url": "a"})])
    assert list(place.iterdir()) == []
    place.rmdir()
    place.with_name("elsewhere").rename(place)
    await store(storage, b"page")
